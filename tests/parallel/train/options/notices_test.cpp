// What a run says at its start about its schedule and its threads.
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/comm/process.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

std::string said(const TrainOptions& o) {
  testing::internal::CaptureStdout();
  run_worlds(o.step.mesh.size(), [&](World& world) { Trainer(test::task_of(), o, world).run(); });
  std::string text;
  for (char c : testing::internal::GetCapturedStdout()) {  // lines may be folded
    if (c == '\n') c = ' ';
    if (c != ' ' || !text.ends_with(' ')) text += c;
  }
  return text;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

TEST(Notices, AWarmUpThatTheRunCutsOff) {
  auto o = test::tiny_options();
  o.lr.warmup = 1000;
  std::string text = said(o);
  EXPECT_TRUE(has(text, "warmup=1000 is more than steps=3: the warm-up ends with the run")) << text;
  o.lr.warmup = 3;
  EXPECT_FALSE(has(said(o), "warm-up")) << said(o);
}

TEST(Notices, StepsThatChangeNothing) {
  auto o = test::tiny_options();
  o.lr = {.peak = 0.1, .low = 0, .warmup = -1, .steps = 0};
  o.steps = 1;
  std::string text = said(o), one = "step 1 has learning rate 0, which is --min-lr";
  size_t at = text.find(one);
  EXPECT_NE(at, text.npos) << text;
  EXPECT_EQ(text.find(one, at + 1), text.npos) << "once: " << text;
  o.steps = 4;
  text = said(o);
  EXPECT_TRUE(has(text, "step 4 has learning rate 0")) << text;
  o.lr.low = 0.01;
  EXPECT_FALSE(has(said(o), "learning rate 0")) << said(o);
  o.lr = {.peak = 0, .low = 0, .warmup = 0, .steps = 0};  // asked for
  EXPECT_FALSE(has(said(o), "learning rate 0")) << said(o);
  o.lr = {.shape = optim::Schedule::Warmup::log, .peak = 1, .low = 1, .warmup = 2, .steps = 0};
  text = said(o);
  EXPECT_TRUE(has(text, "step 1 has learning rate 0: it changes no weights")) << text;
}

TEST(Notices, MoreThreadsThanCores) {
  auto with = [](int threads, const char* policy) {
    ::setenv("OMP_WAIT_POLICY", policy, 1);
    testing::internal::CaptureStdout();
    World world(single_rank({}), threads);
    Trainer(test::task_of(), test::tiny_options(), world).run();
    return testing::internal::GetCapturedStdout();
  };
  const char* set = std::getenv("OMP_WAIT_POLICY");
  std::string before = set ? set : "";
  int cores = usable_cores();
  std::string many = fmt::format("1 rank of this host x {} threads on ", 2 * cores + 1);
  std::string text = with(2 * cores + 1, "active");
  EXPECT_TRUE(has(text, many) && has(text, "set OMP_WAIT_POLICY=passive")) << text;
  text = with(2 * cores + 1, "passive");
  EXPECT_TRUE(has(text, many) && !has(text, "OMP_WAIT_POLICY")) << text;
  EXPECT_FALSE(has(with(1, "active"), "of this host")) << "each has a core";
  set ? ::setenv("OMP_WAIT_POLICY", before.c_str(), 1) : ::unsetenv("OMP_WAIT_POLICY");
}

}  // namespace
}  // namespace triax::parallel
