// A trainer that resumes a checkpoint without a run directory of its own, as `replay` does.
#include <gtest/gtest.h>

#include "core/files.h"
#include "parallel/train/trainer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"

namespace triax::parallel {
namespace {

using namespace test;

void train(const TrainOptions& o) {
  run_worlds(o.step.mesh.size(), [&](World& world) {
    Trainer trainer(task_of(), o, world);
    trainer.run();
  });
}

TEST(ReadOnly, ACheckpointWithoutARunDirectoryIsOnlyRead) {
  TemporaryDirectory directory;
  auto o = tiny_options({.dp = 2});
  o.out = directory / "run", o.save_every = 2;
  train(o);
  auto names = disk().list(o.out);
  o.resume = o.out + "/step-2", o.out = "";
  run_worlds(2, [&](World& world) {
    Trainer trainer(task_of(), o, world);
    EXPECT_EQ(trainer.done(), 2);
    EXPECT_EQ(trainer.consumed(), 32);
    trainer.step();
    expect_error([&] { trainer.save(); }, {"save without a run directory"}, Exit::internal);
  });
  EXPECT_EQ(disk().list(directory / "run"), names);
  for (const char* how : {"auto", "last-good"}) {
    o.resume = how;
    expect_config_error([&] { train(o); }, {"without a run directory"});
  }
}

}  // namespace
}  // namespace triax::parallel
