// correctness 13: an inf in one gradient of any one rank makes all ranks skip the step. It changes
// nothing but the loss scale, on all alike, and the next step trains.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/examples/minigpt/one_step.h"
#include "tests/support/tensors.h"
#include "triax/optim/adamw.h"
#include "triax/optim/loss_scaler.h"
#include "triax/optim/schedule.h"

namespace triax::minigpt::skipped_step_test {

/// A rank as `minigpt train` runs it, in fp16: model, optimizer and loss scale.
class Rank {
 public:
  Rank(const parallel::Task& task, const parallel::StepOptions& o, parallel::Mesh& mesh)
      : clip_(o.clip),
        feed_(feed_of(task, o, mesh)),
        replica_(mesh, task.build, o, facts_of(task, o)),
        adam_(data().slots(), o.adamw),
        scaler_({.hysteresis = 1}) {}

  /// One step; with `spoil`, one element of this rank's gradient is infinite before the ranks ask
  /// each other. Was it skipped?
  bool step(int64_t number, bool spoil) {
    replica_.forward_backward([&](int64_t micro) { return feed_.at(number, micro); },
                              {scaler_.scale(), feed_.weight(number)});
    if (spoil) fill_(some_element(), std::numeric_limits<double>::infinity());
    auto norm = data().norm();
    bool skip = norm.non_finite > 0;
    double scale = scaler_.scale();
    scaler_.update(skip);
    if (skip) return true;
    adam_.step(1e-3, optim::clip_factor(norm.value / scale, clip_) / scale);
    data().publish();
    return false;
  }

  /// What training has made so far, as this rank holds it: weights as layers and as the optimizer
  /// see them, master copies, moments.
  std::vector<std::vector<double>> state() {
    auto hold = data().gather_all();
    std::vector<std::vector<double>> all;
    for (auto* p : replica_.parameters())
      if (p->value.defined()) all.push_back(test::values(p->value));
    for (auto& slot : data().slots()) all.push_back(test::values(slot.weight));
    for (auto& s : adam_.state()) all.push_back(test::values(s.value));
    return all;
  }
  int64_t updates() const { return adam_.steps(); }
  double scale() const { return scaler_.scale(); }

 private:
  parallel::DataParallel& data() { return replica_.data(); }
  Tensor some_element() {
    auto slots = data().slots();
    for (size_t i = 0; i < slots.size(); ++i)
      for (auto& piece : data().slot_pieces(i)) return slots[i].grad.narrow(0, piece.begin, 1);
    ADD_FAILURE() << "a rank without parameters";
    return zeros({1}, f32, cpu);
  }

  double clip_;
  parallel::Feed feed_;
  parallel::Replica replica_;
  optim::AdamW adam_;
  optim::LossScaler scaler_;
};

void expect_skips(int zero, bool sequence_parallel) {
  SCOPED_TRACE(fmt::format("zero {}", zero));
  Job c = small_job(
      {.dp = 2, .pp = 2, .tp = 2, .sequence_parallel = sequence_parallel, .zero = zero}, 2);
  c.model.width = 16;
  c.model.dropout = 0.1;
  c.step().dtype = f16;
  parallel::Task task = task_of(c);
  on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
    auto& world = mesh.world();
    Rank rank(task, c.step(), mesh);
    int64_t number = 0;
    EXPECT_FALSE(rank.step(++number, false));  // moments are not zero any more
    for (int bad = 0; bad < world.size(); ++bad) {
      std::string where = fmt::format("inf on rank {}, seen by rank {}", bad, world.rank());
      auto before = rank.state();
      double scale = rank.scale();
      int64_t updates = rank.updates();
      EXPECT_TRUE(rank.step(++number, world.rank() == bad)) << where;
      EXPECT_EQ(rank.scale(), scale / 2) << where;
      EXPECT_EQ(rank.updates(), updates) << where;
      EXPECT_TRUE(rank.state() == before) << where;

      EXPECT_FALSE(rank.step(++number, false)) << where;
      EXPECT_EQ(rank.scale(), scale / 2) << where;
      EXPECT_EQ(rank.updates(), updates + 1) << where;
      auto after = rank.state();
      for (size_t i = 0; i < after.size(); ++i)
        EXPECT_NE(after[i], before[i]) << where << ", tensor " << i;
    }
    EXPECT_EQ(rank.scale(), 65536 / 256);
  });
}

TEST(SkippedStep, IsSkippedByAllAndChangesNothing) {
  expect_skips(0, false);
  expect_skips(1, true);
  expect_skips(3, true);
}

}  // namespace triax::minigpt::skipped_step_test
