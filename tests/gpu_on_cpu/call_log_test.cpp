// What ranks called last, when one makes no progress.
#include "triax/parallel/comm/gpu/call_log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <thread>

#include "tests/gpu_on_cpu/libraries/nccl.h"
#include "tests/support/expect_error.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel {
namespace {

using namespace test;

struct CallLogTest : testing::Test {
  CallLogTest() {
    std::filesystem::remove_all(folder);
    ::setenv("TRIAX_CALLS_DIR", folder.c_str(), 1);
  }
  ~CallLogTest() override {
    std::filesystem::remove_all(folder);
    ::unsetenv("TRIAX_CALLS_DIR");
  }
  const std::string folder = testing::TempDir() + "triax-call-log";
};

const Error stuck(Exit::peer_lost, "stuck", "here.cpp:1");

Call call_of(Call::Kind kind, int64_t numel, int line, int peer = -1) {
  return {.kind = kind, .dtype = f32, .peer = peer, .numel = numel, .place = {"model.cpp", line}};
}

/// Returns what the first of some ranks finds; each notes its own calls, and the others answer.
Error found(const std::string& job, std::vector<std::vector<Call>> of_ranks) {
  int ranks = int(of_ranks.size());
  std::vector<std::shared_ptr<CallLog>> logs;
  std::vector<std::jthread> others;
  for (int r = 0; r < ranks; ++r) {
    auto group = std::make_shared<LoggedGroup>(Group::world(ranks, r), "0");
    auto& log = *logs.emplace_back(std::make_shared<CallLog>(job, *group));
    for (const Call& call : of_ranks[size_t(r)]) log.note(group, call);
    if (r > 0 && group->noted > 0)
      others.emplace_back([&log](const std::stop_token& over) {
        while (!over.stop_requested()) {
          log.answer();
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        }
      });
  }
  return CallLog::compare(logs[0], stuck,
                          std::make_shared<LoggedGroup>(Group::world(ranks, 0), "0"));
}

void expect_report(const Error& e, Exit code, const std::vector<std::string>& words) {
  expect_error([&] { throw Error(e); }, words, code);
}

TEST_F(CallLogTest, NamesTheFirstCallInWhichRanksDiffer) {
  Call sum = call_of(Call::all_reduce, 8, 10), gather = call_of(Call::all_gather, 8, 20);
  expect_report(found("a", {{sum, sum, gather}, {sum, gather, gather}}), Exit::mismatch,
                {"ranks disagree, group world {0, 1}, call 2", "rank 0: all_reduce(sum, f32[8])",
                 "model.cpp:10", "rank 1: all_gather(f32[8])", "model.cpp:20"});
}

TEST_F(CallLogTest, NamesRanksThatAreBehind) {
  Call sum = call_of(Call::all_reduce, 8, 10);
  expect_report(found("a", {{sum, sum}, {sum}, {}, {sum, sum}}), Exit::peer_lost,
                {"stuck\n", "Rank 1 has made 1 calls there, the last all_reduce(sum, f32[8])",
                 "Rank 2 has not said what it called.", "Calls of all: "});
}

TEST_F(CallLogTest, AMessageAndItsReceiptFit) {
  Call send = call_of(Call::send, 8, 10, 1), take = call_of(Call::recv, 8, 20, 0);
  expect_report(found("a", {{send, send}, {take}}), Exit::peer_lost, {"Rank 1 has made 1 calls"});
  expect_report(found("b", {{send}, {call_of(Call::recv, 4, 20, 0)}}), Exit::mismatch,
                {"send(f32[8], to 1)", "recv(f32[4], from 0)"});
}

// Messages of three ranks count for nothing, and groups that look alike are told apart.
TEST_F(CallLogTest, MessagesOfThreeRanksHaveNoNumber) {
  Call sum = call_of(Call::all_reduce, 8, 10), send = call_of(Call::send, 8, 10, 1);
  Call take = call_of(Call::recv, 8, 20, 0);
  expect_report(found("a", {{send, sum, sum}, {take, sum}, {sum}}), Exit::peer_lost,
                {"Rank 1 has made 1 calls", "Rank 2 has made 1 calls"});
  auto one = std::make_shared<LoggedGroup>(Group::world(2, 0), "0.1");
  auto other = std::make_shared<LoggedGroup>(Group::world(2, 0), "0.2");
  EXPECT_NE(one->key(), other->key());
}

TEST_F(CallLogTest, SaysThatTheFolderCannotBeWritten) {
  ::setenv("TRIAX_CALLS_DIR", "/proc", 1);
  Call sum = call_of(Call::all_reduce, 8, 10);
  expect_report(found("a", {{sum}, {}}), Exit::peer_lost,
                {"stuck\n  Calls were not compared: /proc/triax-calls-a cannot be written"});
}

TEST_F(CallLogTest, KeepsTheLast) {
  std::vector<Call> many(CallLog::kept + 500, call_of(Call::all_reduce, 8, 10)), other = many;
  other[100].numel = 9;
  expect_report(found("a", {many, other}), Exit::peer_lost, {"stuck"});
  other[600].numel = 9;
  expect_report(found("b", {many, other}), Exit::mismatch, {"call 601"});
}

// Through the watchdogs of ranks that are threads. NCCL may move nothing where calls differ.
TEST_F(CallLogTest, DifferentCallsOverNcclAreReported) {
  std::vector<Error> lost;
  std::mutex mutex;
  auto note = [&](const Error& e) {
    std::lock_guard guard(mutex);
    lost.push_back(e);
  };
  auto work = [&] {
    run_thread_ranks(2,
                     [&](std::unique_ptr<Communicator> threads) {
                       Device mine{Device::Kind::cuda, threads->rank()};
                       auto world = nccl_world(std::move(threads), mine, {.lost = note});
                       Tensor x = full({8}, 1, f32, mine), y = full({16}, 1, f32, mine);
                       world->all_reduce(x).wait();
                       x.to_host<float>();
                       world->barrier();
                       if (world->rank() == 0) gpu_on_cpu::nccl::behave({.hang = true});
                       world->barrier();
                       Work w = world->rank() == 0 ? world->all_reduce(x) : world->all_gather(x, y);
                       while (!w.done()) std::this_thread::yield();
                     },
                     {.time_limit = 0.5});
  };
  EXPECT_THROW(work(), Error);
  ASSERT_FALSE(lost.empty());
  expect_report(lost[0], Exit::mismatch,
                {"call 2", "rank 0: all_reduce(sum, f32[8])", "rank 1: all_gather(f32[8])"});
}

}  // namespace
}  // namespace triax::parallel
