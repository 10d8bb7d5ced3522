// correctness 12: a loss that is not finite ends the training before a weight is changed, also
// where every gradient is finite.
#include "examples/minigpt/stepper.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/examples/one_step.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax::minigpt {
namespace {

std::vector<std::vector<double>> weights(Stepper& stepper) {
  auto hold = stepper.data().gather_all();
  std::vector<std::vector<double>> all;
  for (auto* p : stepper.replica().model().parameters()) all.push_back(test::values(p->value));
  return all;
}

nn::Parameter& named(Stepper& stepper, const std::string& name) {
  for (auto* p : stepper.replica().model().parameters())
    if (p->name == name) return *p;
  throw std::out_of_range(name);
}

TrainConfig one_token_a_rank(const MeshConfig& mesh) {
  TrainConfig c{.data = "text"};
  c.model = {.layers = 1, .heads = 2, .width = 8, .context = 1, .vocab = 16};
  c.mesh = mesh;
  c.mesh.chunks = 1;
  c.micro_batch = 1;
  c.global_batch = mesh.dp;
  c.steps = 4;
  c.warmup = 1;
  c.clip = 1;
  return c;
}

/// What comes out of the norm is so large that the target's logit is -inf, but not its slope, and
/// no row of the table.
void spoil_target(Stepper& stepper, int64_t target) {
  fill_(named(stepper, "final_norm.beta").value, 1e19);
  fill_(named(stepper, "tokens.table").value.detach().narrow(0, target, 1), -1e19);
}

void expect_unchanged(const MeshConfig& shape, const std::string& precision) {
  TrainConfig c = one_token_a_rank(shape);
  c.precision = precision;
  TextData text(some_text(), Tokenizer::from_text(some_text(), "text"),
                {.context = c.model.context, .name = "text"});
  parallel::run_ranks(int(c.mesh.dp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(c.mesh.dp)});
    Stepper stepper(c, text, mesh);
    nn::Batch batch = Feed(c, text, mesh.dp()).at(1, 0);
    int32_t target = batch.targets.to_host<int32_t>()[0];
    ASSERT_NE(batch.ids.to_host<int32_t>()[0], target);  // or the spoilt row would be an input too
    if (world.rank() == 0) spoil_target(stepper, target);
    auto before = weights(stepper);
    stepper.take(1);
    std::string error =
        test::error_of([&] { (void)stepper.records(Stepper::Upto::all); }, Exit::non_finite);
    EXPECT_NE(error.find("first in the loss; no weight was changed"), error.npos) << error;
    EXPECT_TRUE(std::isfinite(stepper.data().norm().value));
    EXPECT_TRUE(weights(stepper) == before);
  });
}

TEST(Stepper, ALossThatIsNotFiniteChangesNoWeight) {
  expect_unchanged({.dp = 1}, "fp32");
  expect_unchanged({.dp = 1}, "bf16");
  expect_unchanged({.dp = 2}, "fp32");
}

}  // namespace
}  // namespace triax::minigpt
