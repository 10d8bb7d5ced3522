// The contract of every optimizer: the numbers of a step may come from the host or from a device,
// and a step that does not happen changes nothing.
#include "optim/optimizer.h"

#include "autograd/ops.h"
#include "optim/adamw.h"
#include "optim/averaged.h"
#include "optim/lion.h"
#include "optim/muon.h"
#include "optim/sgd.h"
#include "tests/support/tensors.h"

namespace triax::optim {
namespace {

using namespace test;

/// The decision of a step, on the device of these tests.
Tensor decided(const StepDecision& d) {
  auto v = values_of(d);
  return from_host(std::vector<double>(v.begin(), v.end()), {StepDecision::size}, test_device());
}

/// Weights with their optimizer, and gradients that differ from step to step.
struct Trained {
  explicit Trained(const MakeOptimizer& make)
      : slots{{filled({13}, 1, bf16), filled({13}, 2, f32), {{2, 9}}, {}, {{"w", {3, 9}, 2, 3}}}},
        optimizer(make(slots)) {}
  void gradients_of(int step) { copy_(slots[0].grad, filled({13}, 10 + uint64_t(step), f32)); }
  /// Weights, and all that a checkpoint would hold.
  std::vector<std::vector<double>> everything() const {
    std::vector<std::vector<double>> all{values(slots[0].weight)};
    for (auto& s : optimizer->state()) all.push_back(values(s.value));
    return all;
  }
  std::vector<Slot> slots;
  std::unique_ptr<Optimizer> optimizer;
};

/// w -= lr grad_scale g / steps: nothing but `update`, as a user would write it.
class Decaying final : public Optimizer {
 public:
  explicit Decaying(const std::vector<Slot>& slots) : slots_(slots) {
    for (auto& s : slots_) sums_.push_back(zeros_like(s.grad));
  }
  std::vector<SlotState> state() const override {
    std::vector<SlotState> all;
    for (size_t i = 0; i < sums_.size(); ++i) all.push_back({i, "sum", sums_[i]});
    return all;
  }
  std::vector<StepDecision> seen;

 private:
  void update(const StepDecision& d) override {
    seen.push_back(d);
    for (size_t i = 0; i < slots_.size(); ++i) {
      Tensor delta = slots_[i].grad * (d.lr * d.grad_scale / d.step);
      copy_(sums_[i], sums_[i] + delta);
      copy_(slots_[i].weight, (slots_[i].weight.to(delta.dtype()) - delta).to(bf16));
    }
  }
  std::vector<Slot> slots_;
  std::vector<Tensor> sums_;
};

struct Kind {
  const char* name;
  MakeOptimizer make;
};
template <class O, class Options> MakeOptimizer maker(const Options& options) {
  return [=](const std::vector<Slot>& slots) { return std::make_unique<O>(slots, options); };
}
const std::vector<Kind> kinds{
    {"sgd", maker<Sgd>(SgdOptions{.weight_decay = 0.1})},
    {"momentum", maker<Sgd>(SgdOptions{.momentum = 0.9})},
    {"nesterov", maker<Sgd>(SgdOptions{.momentum = 0.9, .form = SgdStep::Form::nesterov})},
    {"lion", maker<Lion>(LionOptions{})},
    {"adamw", maker<AdamW>(AdamWOptions{})},
    {"muon", maker<Muon>(MuonOptions{})},
    {"averaged",
     [](const std::vector<Slot>& slots) {
       return std::make_unique<Averaged>(slots, std::make_unique<AdamW>(slots, AdamWOptions{}),
                                         0.9);
     }},
    {"of the test's own",
     [](const std::vector<Slot>& slots) { return std::make_unique<Decaying>(slots); }}};

TEST(OptimizerTest, ADecisionIsTheSameStepAsItsNumbers) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained host(make), device(make);
    auto before = host.everything();
    for (int step = 1; step <= 4; ++step) {
      host.gradients_of(step), device.gradients_of(step);
      double lr = 0.1 * step, scale = 0.5;
      host.optimizer->step(lr, scale);
      device.optimizer->step(decided({lr, double(step), scale, 1, 0}));
      ASSERT_EQ(host.everything(), device.everything()) << "step " << step;
    }
    EXPECT_NE(host.everything(), before);
    EXPECT_EQ(device.optimizer->steps(), 4);
  }
}

// A slot's rates are what an optimizer with other options would be given.
TEST(OptimizerTest, ASlotHasRatesOfItsOwn) {
  const std::vector<std::pair<MakeOptimizer, MakeOptimizer>> pairs{
      {maker<Sgd>(SgdOptions{.momentum = 0.9, .weight_decay = 0.1}),
       maker<Sgd>(SgdOptions{.momentum = 0.9, .weight_decay = 0.4})},
      {maker<Lion>(LionOptions{.weight_decay = 0.1}),
       maker<Lion>(LionOptions{.weight_decay = 0.4})},
      {maker<AdamW>(AdamWOptions{.weight_decay = 0.1}),
       maker<AdamW>(AdamWOptions{.weight_decay = 0.4})},
      {maker<Muon>(MuonOptions{.weight_decay = 0.1}),
       maker<Muon>(MuonOptions{.weight_decay = 0.4, .adamw = {.weight_decay = 0.4}})}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    SCOPED_TRACE(i);
    Trained plain(pairs[i].second), host(pairs[i].second), device(pairs[i].second);
    for (Trained* t : {&host, &device}) {
      t->slots[0].rates = {.lr = 0.25, .weight_decay = 0.4};
      t->optimizer = pairs[i].first(t->slots);
    }
    for (int step = 1; step <= 3; ++step) {
      for (Trained* t : {&plain, &host, &device}) t->gradients_of(step);
      plain.optimizer->step(0.25 * 0.1 * step);
      host.optimizer->step(0.1 * step);
      device.optimizer->step(decided({0.1 * step, double(step), 1, 1, 0}));
      ASSERT_EQ(host.everything(), plain.everything()) << "step " << step;
      ASSERT_EQ(device.everything(), plain.everything()) << "step " << step;
    }
  }
}

TEST(OptimizerTest, AStepThatDoesNotHappenChangesNothing) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained skips(make), never(make);
    auto step = [&](Trained& t, int number, double lr) {
      t.gradients_of(number);
      t.optimizer->step(decided({lr, double(number), 1, 1, 0}));
    };
    for (int number : {1, 2}) step(skips, number, 0.1), step(never, number, 0.1);
    auto before = skips.everything();
    fill_(skips.slots[0].grad, NAN);
    skips.optimizer->step(decided({0.1, 3, 1, 0, 0}));
    EXPECT_EQ(skips.everything(), before);
    EXPECT_EQ(skips.optimizer->steps(), 3) << "counts, until the host says otherwise";
    skips.optimizer->set_steps(2);
    step(skips, 3, 0.2), step(never, 3, 0.2);
    EXPECT_EQ(skips.everything(), never.everything());
    EXPECT_EQ(skips.optimizer->steps(), never.optimizer->steps());
  }
}

// As a step may be the first that is skipped: momentum has nothing to go on from.
TEST(OptimizerTest, TheFirstStepMayNotHappen) {
  for (auto& [name, make] : kinds) {
    SCOPED_TRACE(name);
    Trained skips(make), never(make);
    fill_(skips.slots[0].grad, INFINITY);
    skips.optimizer->step(decided({0.1, 1, 1, 0, 0}));
    skips.optimizer->set_steps(0);
    skips.gradients_of(1), never.gradients_of(1);
    skips.optimizer->step(0.1), never.optimizer->step(0.1);
    EXPECT_EQ(skips.everything(), never.everything());
  }
}

TEST(OptimizerTest, AnOptimizerSeesTheDecisionAndTheNumberOfItsStep) {
  Trained t(kinds.back().make);
  auto& seen = dynamic_cast<Decaying&>(*t.optimizer).seen;
  t.optimizer->set_steps(6);
  t.optimizer->step(0.25, 0.5);
  t.optimizer->step(decided({0.75, 8, 2, 1, 0}));
  t.optimizer->step(decided({0.75, 9, 2, 0, 1}));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ((std::vector{seen[0].lr, seen[0].step, seen[0].grad_scale}),
            (std::vector{0.25, 7., 0.5}));
  EXPECT_EQ((std::vector{seen[1].lr, seen[1].step, seen[1].grad_scale}),
            (std::vector{0.75, 8., 2.}));
}

}  // namespace
}  // namespace triax::optim
