#include "parallel/train/probe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/memory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

// It runs the whole model on a device without bytes: a rank that has a quarter of it holds less.
TEST(Probe, IsNoMemoryOfTheRank) {
  auto task = test::task_of();
  const int64_t indices[] = {0, 1, 2, 3};
  nn::Batch batch = task.samples->batch(indices);
  memory::counter()->reset_peaks();
  int64_t live = memory::counter()->live();
  Facts facts = probe(task.build, batch, {});
  EXPECT_EQ(facts.layers().size(), 4u);
  EXPECT_EQ(memory::counter()->peak(), live);
}

}  // namespace
}  // namespace triax::parallel
