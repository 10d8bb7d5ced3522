// A measured pipeline over the simulation of what it ran, and `schedule --overlay`.
#include "parallel/program/report/overlay.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/call_program.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/timed_pipeline.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel::report {
namespace {

using nlohmann::json;
using test::expect_error;
using test::says;
using test::write_bytes;

class OverlayTest : public testing::Test {
 protected:
  test::Said schedule(std::vector<std::string> words) {
    ProgramOptions options{.name = "tiny", .what = "A test.", .train = test::tiny_options()};
    options.task = [] { return test::task_of(); };
    words.insert(words.begin(), {"tiny", "schedule"});
    return test::said_by(options, words);
  }
  test::TemporaryDirectory dir_;
};

// Stages sleep where others compute, so that 8 of them need no 8 cores.
TEST_F(OverlayTest, OfStagesThatSleepIsWithinFivePercent) {
  constexpr double unit = 0.01;
  struct Case {
    const char* schedule;
    int stages;
  };
  for (auto [name, stages] : {Case{"1f1b", 2}, {"zb-v", 4}, {"zb-h1", 8}}) {
    auto apart = [&] {
      double clock = test::trace_step(dir_ / "trace.json", name, stages, unit);
      Overlay o = read_overlay(dir_ / "trace.json");
      EXPECT_LE(o.measured.time, o.measured.whole);
      return std::max(std::abs(longer(o)), std::abs(clock / o.measured.time - 1));
    };
    EXPECT_LE(test::least(0.05, apart), 0.05) << name;
  }
}

/// Two stages, a micro-batch: 2 ms forward and 4 ms backward each, 1 ms between the stages, and
/// 0.5 ms more before stage 0 goes on.
std::string small_trace() {
  auto event = [](int rank, const char* name, const char* kind, int begin, int end) {
    return fmt::format(
        R"({{"ph":"X","pid":{0},"tid":{0},"name":"{1}","cat":"{2}","ts":{3},"dur":{4}}},)"
        "\n",
        rank + 1, name, kind, begin, end - begin);
  };
  std::string events;
  for (int rank : {0, 1})
    events += event(rank, "step 7", "work", 0, 40000) + event(rank, "step", "work", 500, 16000);
  events += event(0, "F0", "action", 1000, 3000) + event(1, "F0", "action", 1000, 6000) +
            event(1, "wait recv link 0 up", "waiting", 1000, 4000) +
            event(1, "B0", "action", 6000, 10000) + event(0, "B0", "action", 3000, 15500) +
            event(0, "wait recv link 0 down", "waiting", 3000, 11500);
  return "{\"displayTimeUnit\":\"ms\",\"steps\":[7,7],\"schedule\":\"1f1b\",\"placement\":\"ring\","
         "\"ranks\":[\n"
         R"({"rank":0,"dp":0,"pp":0,"tp":0,"busy":0,"communicating":0,"waiting":0},)"
         "\n"
         R"({"rank":1,"dp":0,"pp":1,"tp":0,"busy":0,"communicating":0,"waiting":0}],)"
         "\n\"traceEvents\":[\n" +
         events.substr(0, events.size() - 2) + "]}\n";
}

TEST_F(OverlayTest, SaysWhoWaits) {
  std::filesystem::create_directory(dir_ / "run");
  write_bytes(dir_ / "run/trace.json", small_trace());
  test::Said said = schedule({"--overlay", dir_ / "run"});
  EXPECT_EQ(said.code, 0) << said.err;
  EXPECT_TRUE(says(said.out, "run, step 7: 1f1b, 2 stages, 1 micro-batch\n"));
  EXPECT_TRUE(says(said.out,
                   "pipeline, measured       14.50 ms\n"
                   "pipeline, simulated      14.00 ms  measured: +3.6 %\n"
                   "whole step               15.50 ms\n"));
  EXPECT_TRUE(says(said.out,
                   "stage 0       6.00 ms     8.50 ms  58.6 %           8.00 ms\n"
                   "stage 1       6.00 ms     8.50 ms  58.6 %           8.00 ms\n"));
  EXPECT_TRUE(says(said.out, "stage 0 waits most: 8.50 ms of 14.50 ms"));
}

TEST_F(OverlayTest, JsonHoldsBoth) {
  write_bytes(dir_ / "trace.json", small_trace());
  json all = json::parse(schedule({"--overlay", dir_ / "trace.json", "--json"}).out);
  EXPECT_EQ(all["step"], 7);
  EXPECT_NEAR(all["seconds"], 15.5e-3, 1e-9);
  EXPECT_NEAR(all["measured"]["time"], 14.5e-3, 1e-9);
  EXPECT_NEAR(all["simulated"]["time"], 14e-3, 1e-9);
  for (const char* which : {"measured", "simulated"}) {
    ASSERT_EQ(all[which]["actions"].size(), 4u);
    EXPECT_EQ(all[which]["stages"], 2);
  }
  EXPECT_NEAR(all["measured"]["actions"][1]["begin"], 10.5e-3, 1e-9) << "without its wait";
  EXPECT_NEAR(all["simulated"]["actions"][1]["begin"], 10e-3, 1e-9);
}

TEST_F(OverlayTest, IsRefusedWithoutAPipeline) {
  auto refused = [&](const std::string& source, std::initializer_list<std::string> parts,
                     Exit code) { expect_error([&] { read_overlay(source); }, parts, code); };
  refused(dir_ / "nowhere", {"overlay=", "nowhere: there is no such run"}, Exit::not_found);
  std::filesystem::create_directory(dir_ / "run");
  refused(dir_ / "run", {"run/trace.json", "train --pp 2 --profile"}, Exit::not_found);

  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = small_trace();
    write_bytes(dir_ / "trace.json", text.replace(text.rfind(from), from.size(), to));
    return dir_ / "trace.json";
  };
  const char* no_pipeline = "step 7 has no actions of a pipeline";
  refused(with("\"pp\":1,\"tp\":0", "\"pp\":0,\"tp\":1"), {no_pipeline}, Exit::data);
  std::string text = small_trace();
  for (size_t at; (at = text.find("\"action\"")) != text.npos;) text.replace(at, 8, "\"layer\"");
  write_bytes(dir_ / "trace.json", text);
  refused(dir_ / "trace.json", {no_pipeline}, Exit::data);
  // Three stages by its ranks, two by its actions; and one whose forward is missing.
  refused(with("\"waiting\":0}],",
               "\"waiting\":0},\n{\"rank\":2,\"dp\":0,\"pp\":2,\"tp\":0,"
               "\"busy\":0,\"communicating\":0,\"waiting\":0}],"),
          {"trace.json: the actions of step 7 are no whole schedule of 3 stages"}, Exit::data);
  refused(with("\"F0\"", "\"X0\""), {"no whole schedule of 2 stages"}, Exit::data);
  refused(with("\"dur\":", "\"dur\":-"), {"trace.json:", "ends before it begins"}, Exit::data);
  refused(with("\"ts\":", "\"ts\":{"), {"trace.json:", "JSON"}, Exit::data);
  write_bytes(dir_ / "trace.json", small_trace().substr(0, 700));
  refused(dir_ / "trace.json", {"trace.json:"}, Exit::data);
}

TEST_F(OverlayTest, NeedsARun) {
  test::Said said = schedule({"--overlay", ""});
  EXPECT_EQ(said.code, int(Exit::config));
  EXPECT_TRUE(says(said.err, "overlay is empty"));
}

TEST_F(OverlayTest, TakesNoFlagThatTheTraceAnswers) {
  write_bytes(dir_ / "trace.json", small_trace());
  for (const char* flag : {"pp", "micros", "times", "schedule"}) {
    std::string value = std::string(flag) == "times"      ? "1,1,1,0"
                        : std::string(flag) == "schedule" ? "zb-h1"
                                                          : "4";
    test::Said said = schedule({"--overlay", dir_ / "trace.json", "--" + std::string(flag), value});
    EXPECT_EQ(said.code, int(Exit::config));
    EXPECT_TRUE(says(said.err, std::string(flag) + " with overlay="));
  }
}

}  // namespace
}  // namespace triax::parallel::report
