// Run directories as they are found: whole, just begun, cut, damaged; and traces of --profile.
#include "parallel/program/report/runs.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/check.h"
#include "parallel/program/report/overlay.h"
#include "parallel/program/report/pipeline_svg.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace triax::parallel::report {
namespace {

using test::expect_error;
using test::write_bytes;

std::string line(int64_t step, const std::string& more = "") {
  return fmt::format(R"({{"step":{},"loss":{},"grad_norm":1.5,"tokens":64,"tokens_per_second":8,)"
                     R"("skipped":false{}}})"
                     "\n",
                     step, 1.0 / double(step), more);
}

class ReportRuns : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& metrics) {
    std::filesystem::create_directories(dir_ / name);
    write_bytes(dir_ / name + "/metrics.jsonl", metrics);
    return dir_ / name;
  }
  std::string trace(const std::string& text) {
    write_bytes(dir_ / "trace.json", text);
    return dir_ / "trace.json";
  }
  test::TemporaryDirectory dir_;
};

TEST_F(ReportRuns, HaveNumbersByStep) {
  std::string path = run(
      "a",
      line(1) + line(2, R"(,"val_loss":0.25)") +
          R"({"step":3,"loss":null,"skipped":true,"overflow":"the loss","changed":"seed was 1"})"
          "\n");
  write_bytes(path + "/config.toml", "# Mesh\npp = 2\nschedule = \"zb-h1\"\n");
  write_bytes(path + "/lock", "process 1 on here");
  RunFacts r = read_run(path + "/");
  EXPECT_EQ(r.name, "a");
  EXPECT_EQ(r.unit, "tokens");
  EXPECT_EQ(r.column("loss").steps, (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(r.column("loss").values[1], 0.5);
  EXPECT_TRUE(std::isnan(r.column("loss").values[2]));
  EXPECT_EQ(r.column("val_loss").steps, (std::vector<double>{2}));
  EXPECT_EQ(r.column("nothing").size(), 0u);
  EXPECT_EQ(r.skipped.steps, (std::vector<double>{3}));
  EXPECT_EQ(r.overflows, (std::vector<std::string>{"step 3: the loss"}));
  EXPECT_EQ(r.setting("schedule"), "zb-h1");
  EXPECT_EQ(r.setting("tp"), "?");
  EXPECT_EQ(number_of(r, "pp"), 2);
  EXPECT_EQ(number_of(r, "schedule"), 0);
  EXPECT_EQ(r.host, "process 1 on here");
  EXPECT_EQ(r.notes,
            (std::vector<std::string>{"Step 3 began a run with other settings: seed was 1."}));
  write_bytes(path + "/settings.txt", "pp = 4\nmodel FLOP per step = 2.5e9\n");
  r = read_run(path);
  EXPECT_EQ(r.setting("pp"), "4") << "as resolved";
  EXPECT_EQ(number_of(r, "model FLOP per step"), 2.5e9);
}

TEST_F(ReportRuns, MayHaveTheirMetricsElsewhere) {
  std::string path = run("a", line(1));
  write_bytes(dir_ / "far.jsonl", line(1) + line(2));
  write_bytes(path + "/metrics_path", dir_ / "far.jsonl" + "\n");
  EXPECT_EQ(read_run(path).column("loss").size(), 2u);
  std::filesystem::remove(dir_ / "far.jsonl");  // as on another machine
  EXPECT_EQ(read_run(path).column("loss").size(), 1u);
}

TEST_F(ReportRuns, ThatAreCopiesHaveTheirOwn) {
  std::string first = run("a", line(1) + line(2) + line(3)), copy = run("b", line(1) + line(2));
  for (auto& path : {first, copy}) write_bytes(path + "/metrics_path", first + "/metrics.jsonl\n");
  EXPECT_EQ(read_run(copy).column("loss").size(), 2u);
  EXPECT_EQ(read_run(first).column("loss").size(), 3u);
}

TEST_F(ReportRuns, LoseALineThatIsCut) {
  for (size_t left : {size_t(1), size_t(20), line(3).size() - 1}) {
    RunFacts r = read_run(run("a", line(1) + line(2) + line(3).substr(0, left)));
    EXPECT_EQ(r.column("loss").size(), 2u);
    ASSERT_EQ(r.notes.size(), 1u);
    EXPECT_NE(r.notes[0].find("metrics.jsonl, number 3, is cut"), std::string::npos) << r.notes[0];
  }
}

TEST_F(ReportRuns, ThatAreDamagedAreNamedWithTheLine) {
  auto refused = [&](const std::string& metrics, const std::string& why) {
    std::string path = run("a", metrics);
    expect_error([&] { read_run(path); }, {"a/metrics.jsonl:2", why, "damaged"}, Exit::data);
  };
  refused(line(1) + line(2).substr(0, 30) + "\n" + line(3), "not JSON at byte");
  refused(line(1) + "\n" + line(3), "does not start with an open brace");
  refused(line(1) + "{\"loss\":1}\n", "has no step");
  refused(line(1) + "{\"step\":2}\n", "has no loss");
  refused(line(1) + "{\"step\":2,\"loss\":\"x\"}\n", "is not a number");
  refused(line(2) + line(2), "has step 2 after step 2");
  refused(line(1) + line(2, ",\"lr\":\"\xff\""), "not JSON at byte");
}

TEST_F(ReportRuns, ThatAreNone) {
  expect_error([&] { read_run(dir_ / "nowhere"); }, {"there is no ", "nowhere"}, Exit::not_found);
  std::filesystem::create_directory(dir_ / "folder");
  expect_error([&] { read_run(dir_ / "folder"); }, {"folder has no metrics.jsonl"}, Exit::data);
  write_bytes(dir_ / "folder/config.toml", "");
  expect_error([&] { read_run(dir_ / "folder"); }, {"has no metrics.jsonl"}, Exit::not_found);
  for (const std::string& begun : {std::string(), line(1).substr(0, 30)})
    expect_error([&] { read_run(run("a", begun)); },
                 {"a/metrics.jsonl has no whole line yet", "Wait for its first step"},
                 Exit::not_found);
  write_bytes(dir_ / "file", "x");
  expect_error([&] { read_run(dir_ / "file"); }, {"file has no metrics.jsonl"}, Exit::data);
}

TEST_F(ReportRuns, OfOnePageDiffer) {
  std::string a = run("x/a", line(1)), b = run("y/a", line(1)), c = run("y/c", line(1));
  auto runs = read_runs({a, b, c});
  EXPECT_EQ(runs[0].name, a);
  EXPECT_EQ(runs[1].name, b);
  EXPECT_EQ(runs[2].name, "c");
  expect_error([&] { read_runs({a, b, a + "/."}); }, {"is given twice"}, Exit::usage);
  expect_error([&] { read_runs(std::vector<std::string>(17, a)); }, {"17 runs", "at most 16"},
               Exit::usage);
  std::string images = run("z", R"({"step":1,"loss":1,"samples":8,"samples_per_second":8})"
                                "\n");
  expect_error(
      [&] {
        read_runs({a, images});
      },
      {"x/a counts tokens", "z counts samples", "different programs"}, Exit::data);
}

/// Two stages, two micro-batches; stage 1 waits 1 ms for each forward.
std::string event(int rank, const std::string& name, const std::string& kind, double ts,
                  double dur) {
  return fmt::format(
      R"({{"ph":"X","pid":{0},"tid":{0},"name":"{1}","cat":"{2}","ts":{3},"dur":{4}}})", rank + 1,
      name, kind, ts, dur);
}

std::string two_stages(const std::vector<std::string>& events) {
  return "{\"displayTimeUnit\":\"ms\",\"steps\":[2,3],\"schedule\":\"gpipe\","
         "\"ranks\":[\n"
         R"({"rank":0,"dp":0,"pp":0,"tp":0,"busy":0.5,"communicating":0.25,"waiting":0.125},)"
         "\n"
         R"({"rank":1,"dp":0,"pp":1,"tp":0,"busy":0.25,"communicating":0,"waiting":0.625}],)"
         "\n\"traceEvents\":[\n" +
         join(events, ",\n") + "]}\n";
}

std::vector<std::string> gpipe_events() {
  std::vector<std::string> all;
  for (int rank : {0, 1}) {
    all.push_back(event(rank, "step 2", "work", 0, 900));
    all.push_back(event(rank, "F0", "action", 10, 800));  // of another step
    all.push_back(event(rank, "step 3", "work", 1000, 30000));
    all.push_back(event(rank, "step", "work", 1000, 19000));
    all.push_back(event(rank, "F0", "action", 25000, 800));  // of a validation
  }
  for (int micro : {0, 1}) {
    all.push_back(event(0, fmt::format("F{}", micro), "action", 2000 + 2000 * micro, 2000));
    all.push_back(event(1, fmt::format("F{}", micro), "action", 3000 + 3000 * micro, 3000));
    all.push_back(event(1, "wait move link 0 up", "waiting", 3000 + 3000 * micro, 1000));
    all.push_back(event(0, "wait all_reduce dp", "waiting", 2500 + 2000 * micro, 100));
    all.push_back(event(1, fmt::format("B{}", micro), "action", 9000 + 3000 * micro, 3000));
    all.push_back(event(0, fmt::format("B{}", micro), "action", 12000 + 3000 * micro, 3000));
  }
  return all;
}

TEST_F(ReportRuns, TracesShowTheLastStepOfThePipeline) {
  auto t = read_trace(trace(two_stages(gpipe_events())));
  ASSERT_TRUE(t && t->pipeline);
  EXPECT_EQ(t->first, 2);
  EXPECT_EQ(t->last, 3);
  EXPECT_EQ(t->schedule, "gpipe");
  ASSERT_EQ(t->ranks.size(), 2u);
  EXPECT_EQ(t->ranks[1].pp, 1);
  EXPECT_EQ(t->ranks[0].communicating, 0.25);
  const MeasuredPipeline& p = *t->pipeline;
  EXPECT_EQ(p.shape, (PipelineShape{2, 1, 2}));
  ASSERT_EQ(p.actions.size(), 8u);
  EXPECT_NEAR(p.time, 16e-3, 1e-9);
  EXPECT_EQ(p.actions[4].stage, 1);
  EXPECT_NEAR(p.actions[4].begin, 2e-3, 1e-9) << "without the wait for its input";
  EXPECT_NEAR(p.actions[0].end, 2e-3, 1e-9) << "with that for others";
  EXPECT_NEAR(bubble(p), 6. / 16, 1e-6);
}

TEST_F(ReportRuns, TracesAreSimulatedWithMeasuredTimes) {
  auto t = read_trace(trace(two_stages(gpipe_events())));
  Timeline s = simulated(*t->pipeline, "gpipe");
  EXPECT_NEAR(s.simulation.time, 3 * (2e-3 + 3e-3), 1e-9);
  EXPECT_NEAR(bubble(s), 1. / 3, 1e-6);
  t->pipeline->actions.pop_back();
  expect_error([&] { simulated(*t->pipeline, "gpipe"); },
               {"the actions of step 3 are no whole schedule of 2 stages", "stage 1"}, Exit::data);
}

TEST_F(ReportRuns, TracesOfOneStageHaveNoPipeline) {
  std::string text = two_stages({event(0, "step 3", "work", 0, 5)});
  text.replace(text.find("\"pp\":1"), 6, "\"pp\":0");
  text.replace(text.rfind("\"tp\":0"), 6, "\"tp\":1");
  EXPECT_FALSE(read_trace(trace(text))->pipeline);
  EXPECT_FALSE(read_trace(dir_ / "none.json"));
}

TEST_F(ReportRuns, TracesThatAreDamaged) {
  std::string whole = two_stages(gpipe_events());
  auto refused = [&](const std::string& text) {
    expect_error([&] { read_trace(trace(text)); }, {"trace.json"}, Exit::data);
  };
  for (size_t bytes = 0; bytes + 2 < whole.size(); bytes += 7) refused(whole.substr(0, bytes));
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    return text.replace(text.find(from), from.size(), to);
  };
  refused(with("\"pp\":1", "\"pp\":9"));
  refused(with("[2,3]", "[2]"));
  refused(with("\"ts\":2000", "\"ts\":\"x\""));
  refused(with("\"busy\":0.5,", ""));
}

}  // namespace
}  // namespace triax::parallel::report
