#include "triax/parallel/comm/threads/thread_comm.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>

#include "tests/parallel/collective_cases.h"
#include "tests/parallel/promise_cases.h"
#include "tests/support/expect_error.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/core/check.h"
#include "triax/core/shared/team.h"
#include "triax/parallel/comm/meta_comm.h"

namespace triax::parallel::thread_comm_test {

using namespace test;
using namespace cases;
using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

struct Collectives : testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Collectives, OnThreads) {
  auto [number, ranks] = GetParam();
  run_ranks(ranks, collective_cases()[size_t(number)].run);
}

INSTANTIATE_TEST_SUITE_P(ThreadComm, Collectives,
                         testing::Combine(testing::Range(0, int(collective_cases().size())),
                                          testing::Values(1, 2, 3, 4, 8)),
                         [](const auto& i) {
                           return fmt::format("{}_on_{}",
                                              collective_cases()[size_t(std::get<0>(i.param))].name,
                                              std::get<1>(i.param));
                         });

/// What a rank does, and how the run of three of them must end: with an Error, within a second.
struct Ending {
  Exit code;
  std::vector<std::string> parts;
  ThreadOptions options = {};
};
void expect_end(const Ending& end, const std::function<void(Communicator&)>& rank) {
  auto start = Clock::now();
  expect_error([&] { run_ranks(3, rank, end.options); }, end.parts, end.code);
  EXPECT_LT(seconds_since(start), 1);
}

TEST(ThreadComm, MismatchNamesBothCalls) {
  struct Case {
    const char* text;
    std::function<void(Communicator&, const Tensor&)> call;
  };
  std::vector<Case> odd = {
      {"all_reduce(max, f32[6])", [](auto& c, auto& x) { c.all_reduce(x, ReduceOp::max).wait(); }},
      {"all_reduce(sum, f32[5])", [](auto& c, auto& x) { c.all_reduce(x.narrow(0, 0, 5)).wait(); }},
      {"all_reduce(sum, i32[6])", [](auto& c, auto& x) { c.all_reduce(x.to(i32)).wait(); }},
      {"broadcast(f32[6], root 1)", [](auto& c, auto& x) { c.broadcast(x, 1).wait(); }},
      {"all_gather(f32[2])", [](auto& c, auto& x) { c.all_gather(x.narrow(0, 0, 2), x).wait(); }},
      {"all_to_all(f32[2])", [](auto& c, auto& x) { c.all_to_all(x, zeros_like(x)).wait(); }},
      {"barrier()", [](auto& c, auto&) { c.barrier(); }},
      {"split()",
       [](auto& c, auto&) {
         c.split([](int r) { return Communicator::Seat{0, r}; }, "s");
       }},
  };
  for (auto& o : odd) {
    Ending end{Exit::mismatch,
               {"ranks disagree, group world {0, 1, 2}, call 2", "all_reduce(sum, f32[6])",
                "rank 1: ", o.text, "Last call that matched: 1",
                "tests/parallel/comm/thread_comm_test.cpp:"}};
    expect_end(end, [&](Communicator& c) {
      Tensor x = zeros({6}, f32, cpu);
      c.barrier();
      if (c.rank() == 1) o.call(c, x);
      else c.all_reduce(x).wait();
    });
  }
}

TEST(ThreadComm, EveryPairOfCallsIsNamed) {
  run_ranks(3, [](Communicator& c) {
    EXPECT_EQ(check_mismatches(c).substr(0, 8), "78 kinds");
    check_no_alarm(c, 1000, 1);
  });
}

TEST(ThreadComm, MismatchedMessage) {
  Ending end{Exit::mismatch, {"rank 0: send(f32[4], to 2)", "rank 2: recv(f16[4], from 0)"}};
  expect_end(end, [](Communicator& c) {
    if (c.rank() == 0) c.send(zeros({4}, f32, cpu), 2).wait();
    if (c.rank() == 2) c.recv(zeros({4}, f16, cpu), 0).wait();
  });
}

TEST(ThreadComm, FailingRankFailsAll) {
  std::atomic<int> lost = 0;
  expect_end({Exit::data, {"the first error"}}, [&](Communicator& c) {
    auto half = c.split([](int r) { return Communicator::Seat{0, r}; }, "half");
    if (c.rank() == 1) fail(Exit::data, "the first error");
    auto meet_rank_1 = [&] {
      if (c.rank()) half->barrier();
      else c.recv(zeros({1}, f32, cpu), 1).wait();
    };
    expect_error(meet_rank_1, {"rank 1 failed: the first error"}, Exit::peer_lost);
    ++lost;
  });
  EXPECT_EQ(lost, 2);
}

TEST(ThreadComm, NothingMovesByTablesThatDiffer) {
  expect_end({Exit::mismatch, {"all_to_all(f32[8]) of table ", "rank 1: "}}, [](Communicator& c) {
    bool other = c.rank() == 1;  // sends 4 rows where rank 0 expects 2
    int64_t sent[] = {4, 4, 0}, expected[] = {2, 4, 0};
    Tensor x = zeros({sent[c.rank()], 2}, f32, cpu), y = zeros({expected[c.rank()], 2}, f32, cpu);
    c.all_to_all(x, y, {0, 4, 0, other ? 4 : 2, 0, 0, 0, 0, 0}).wait();
  });
}

TEST(ThreadComm, RankThatReturnedIsNamed) {
  expect_end({Exit::mismatch, {"barrier()", "rank 2: returned"}}, [](Communicator& c) {
    if (c.rank() != 2) c.barrier();
  });
}

TEST(ThreadComm, MissingRankIsNamedAtTheTimeLimit) {
  Ending end{Exit::peer_lost,
             {"all_reduce(sum, f32[4])", "for 0.1 s", "waiting for rank 1", "thread_comm_test.cpp"},
             {.time_limit = 0.1}};
  expect_end(end, [](Communicator& c) {
    if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    else c.all_reduce(zeros({4}, f32, cpu)).wait();
  });
}

TEST(ThreadComm, UnwindingDoesNotWait) {
  expect_end({Exit::io, {"while in flight"}}, [](Communicator& c) {
    if (c.rank() == 0) {
      try {
        Tensor x = zeros({1000}, f32, cpu);
        Work w = c.all_reduce(x);  // the others never come
        fail(Exit::io, "while in flight");
      } catch (const Error& first) {
        EXPECT_EQ(first.code(), Exit::io);
        EXPECT_THROW(c.barrier(), Error);  // broken
        throw;
      }
    }
    Tensor x = zeros({1}, f32, cpu);
    c.recv(x, (c.rank() + 1) % 3).wait();
  });
}

TEST(ThreadComm, ErrorInADestructorIsThrownByTheNextCall) {
  expect_end({Exit::mismatch, {"all_reduce", "rank 2: returned"}}, [](Communicator& c) {
    if (c.rank() == 2) return;
    { Work w = c.all_reduce(zeros({1}, f32, cpu)); }
    c.barrier();
  });
}

TEST(ThreadComm, ARankThatSeesASplitDifferentlyEndsIt) {
  using Seat = Communicator::Seat;
  for (Seat wrong : {Seat{1, 2}, Seat{0, 7}})
    expect_error(
        [&] {
          run_ranks(3, [&](Communicator& c) {
            auto seat = [&](int r) { return c.rank() == 1 && r == 2 ? wrong : Seat{0, r}; };
            c.split(seat, "parts")->barrier();
          });
        },
        {"rank 2 of world", "color 0, key 2"}, Exit::mismatch);
}

TEST(ThreadComm, RefusesWhatDoesNotFit) {
  run_ranks(2, [](Communicator& c) {
    Tensor x = zeros({4, 6}, f32, cpu);
    EXPECT_THROW((void)c.all_reduce(Tensor()), Error);
    EXPECT_THROW((void)c.all_reduce(x.transpose(0, 1)), Error);
    EXPECT_THROW((void)c.all_gather(x, x), Error);
    EXPECT_THROW((void)c.reduce_scatter(x, zeros({12}, f16, cpu)), Error);
    expect_error([&] { (void)c.all_to_all(x.narrow(0, 0, 2), x.narrow(0, 1, 2)); },
                 {"all_to_all: mine and all share memory"});
    c.all_to_all(x.narrow(0, 0, 2), x.narrow(0, 2, 2)).wait();
    EXPECT_THROW((void)c.all_to_all(x, zeros({4, 6}, f16, cpu)), Error);
    EXPECT_THROW((void)c.all_to_all(zeros({3}, f32, cpu), zeros({3}, f32, cpu)), Error);
    Tensor y = zeros({4, 6}, f32, cpu);
    auto refused = [&](const std::vector<int64_t>& rows, const char* text) {
      expect_error([&] { (void)c.all_to_all(x, y, rows); }, {"all_to_all: ", text});
    };
    refused({2, 2, 2}, "a table of 3 counts for 2 ranks; expected 4");
    refused({1, 2, 1, 2},
            "2 counts with a sum of 3 for mine = [4, 6] f32 on cpu; expected 2, with");
    refused({1, 3, 1, 3}, "for all = [4, 6] f32 on cpu");
    refused({5, -1, 5, -1}, "-1 rows of mine; expected at least 0");
    expect_error(
        [&] {
          (void)c.all_to_all(x, zeros({4, 5}, f32, cpu), {2, 2, 2, 2});
        },
        {"rows of 6 elements in mine, of 5 in all"});
    EXPECT_THROW((void)c.broadcast(x, 2), Error);
    EXPECT_THROW((void)c.broadcast(x, -1), Error);
    EXPECT_THROW((void)c.send(x, -1), Error);
    EXPECT_THROW((void)c.send(x, c.rank()), Error);
    EXPECT_THROW((void)c.split([](int r) { return Communicator::Seat{-1, r}; }, "s"), Error);
    c.barrier();
  });
}

/// Imagined peers send what this rank expects.
TEST(ThreadComm, RefusesWhatHasAGradientHistory) {
  run_ranks(2, [](Communicator& world) {
    Tensor w = full({4}, 1, f32, cpu);
    require_grad(w);
    Tensor y = w * w;
    expect_error([&] { world.all_reduce(y).wait(); },
                 {"all_reduce: [4] f32 on cpu, which has a gradient history", "detach()"});
    expect_error([&] { world.all_gather(y, zeros({8}, f32, cpu)).wait(); }, {"all_gather: [4]"});
    world.broadcast(w, 0).wait();  // a leaf has none
    Tensor x = full({4}, 1, f32, cpu), z = sum(w * x);
    world.all_reduce(x).wait();
    expect_error([&] { backward(z); }, {"mul has kept values"});
  });
}

TEST(MetaComm, TakesAnyTableForAnAllToAll) {
  MetaComm c(3, 1);
  Tensor x = zeros({6, 4}, f32, meta_device), y = zeros({7, 4}, f32, meta_device);
  c.all_to_all(x, y, {9, 0, 1, 1, 2, 3, 9, 5, 9}).wait();
  EXPECT_EQ(c.ledger()[Call::all_to_all].bytes, 4 * 4 * 4);
  expect_error(
      [&] {
        (void)c.all_to_all(x, y, {9, 0, 1, 1, 2, 3, 9, 4, 9});
      },
      {"all_to_all: 3 counts with a sum of 6 for all = [7, 4]"}, Exit::internal);
}

/// After wait() nobody but the owner holds a tensor, though another rank is late to wait.
TEST(ThreadComm, TensorsAreReleasedByWait) {
  run_ranks(2, [](Communicator& c) {
    Tensor x = zeros({1000}, f32, cpu);
    Work w = c.all_reduce(x);
    if (c.rank() == 0) {
      w.wait();
      EXPECT_TRUE(x.exclusive());
    }
    c.barrier();
    w.wait();
  });
}

/// A rank that computes holds nobody up once it has called.
TEST(ThreadComm, WaiterDoesTheWork) {
  run_ranks(2, [](Communicator& c) {
    Tensor x = full({1 << 20}, 1, f32, cpu);
    Work w = c.all_reduce(x);
    Tensor flag = zeros({1}, i32, cpu);
    if (c.rank() == 0) {
      w.wait();
      c.send(flag, 1).wait();
    } else {
      c.recv(flag, 0).wait();  // rank 0 is through before rank 1 looks at its own operation
      EXPECT_TRUE(w.done());
    }
  });
}

TEST(ThreadComm, MoreThreadsThanCanStartAreRefused) {
  int before = team_threads();
  set_threads(100000);  // as OMP_NUM_THREADS does
  expect_config_error([] { run_ranks(2, [](Communicator&) {}); },
                      {"OMP_NUM_THREADS: 100000 threads for each rank", "expected 1 to"});
  set_threads(before);
}

TEST(ThreadComm, AWordForANumberOfThreadsIsRefused) {
  const char* before = std::getenv("OMP_NUM_THREADS");
  std::string old = before ? before : "";
  for (const char* wrong : {"0", "-1", "abc", "1e3", "2x", "99999999999999999999"}) {
    ::setenv("OMP_NUM_THREADS", wrong, 1);
    expect_config_error([] { run_ranks(2, [](Communicator&) {}); },
                        {fmt::format("OMP_NUM_THREADS: '{}'; expected a number", wrong)});
  }
  for (const char* right : {"", "2", "2,1", "2 "}) {
    ::setenv("OMP_NUM_THREADS", right, 1);
    EXPECT_EQ(threads_asked_for(), *right ? 2 : 0);
    EXPECT_NO_THROW(run_ranks(2, [](Communicator&) {}));
  }
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(threads_asked_for(), 0);
  EXPECT_NO_THROW(run_ranks(2, [](Communicator&) {}));
  before ? ::setenv("OMP_NUM_THREADS", old.c_str(), 1) : ::unsetenv("OMP_NUM_THREADS");
}

TEST(ThreadComm, EveryRankCountsItsOwnMemory) {
  run_ranks(2, [](Communicator& c) {
    Tensor x = zeros({c.rank() ? 1000 : 10}, f32, cpu);
    EXPECT_EQ(memory::counter()->live(), c.rank() ? 4000 : 40);
    c.barrier();
  });
}

}  // namespace triax::parallel::thread_comm_test
