// correctness 12: a loss that is not finite ends the training before a weight is changed, also
// where every gradient is finite.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/examples/minigpt/one_step.h"
#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax::minigpt::step_test {

std::vector<std::vector<double>> weights(const parallel::Step& step) {
  auto hold = step.replica().data().gather_all();
  std::vector<std::vector<double>> all;
  for (auto* p : step.replica().parameters()) all.push_back(test::values(p->value));
  return all;
}

const nn::Parameter& named(const parallel::Step& step, const std::string& name) {
  for (auto* p : step.replica().parameters())
    if (p->name == name) return *p;
  throw std::out_of_range(name);
}

Job one_token_a_rank(const Layout& layout, DType dtype) {
  Job c;
  c.model = {.layers = 1, .heads = 2, .width = 8, .context = 1, .vocab = 16};
  c.set(layout);
  c.step().dtype = dtype;
  c.step().micro_batch = 1;
  c.step().global_batch = layout.dp;
  return c;
}

/// What comes out of the norm is so large that the target's logit is -inf, but not its slope, and
/// no row of the table.
void spoil_target(const parallel::Step& step, int64_t target) {
  fill_(named(step, "final_norm.beta").value.detach(), 1e19);
  fill_(named(step, "tokens.table").value.detach().narrow(0, target, 1), -1e19);
}

double gradient_norm(const parallel::Step& step) {
  Tensor sums = zeros({2}, f64, cpu);
  step.replica().data().add_squares(sums);
  step.mesh().world().all_reduce(sums).wait();
  return parallel::DataParallel::norm_of(sums.to_host<double>()).value;
}

void expect_unchanged(const Layout& layout, DType dtype) {
  Job c = one_token_a_rank(layout, dtype);
  parallel::Task task = task_of(c);
  on_mesh(layout.mesh(), [&](parallel::Mesh& mesh) {
    parallel::Step step(mesh, task.build, c.step(), facts_of(task, c.step()));
    nn::Batch batch = feed_of(task, c.step(), mesh).at(1, 0);
    int32_t target = batch.target.to_host<int32_t>()[0];
    ASSERT_NE(batch.input.to_host<int32_t>()[0],
              target);  // or the spoilt row would be an input too
    if (mesh.world().rank() == 0) spoil_target(step, target);
    auto before = weights(step);
    step.take({.batches = [&](int64_t) { return batch; }, .weight = double(layout.dp), .lr = 1e-3});
    std::string error =
        test::error_of([&] { (void)step.results(parallel::Step::Await::all); }, Exit::non_finite);
    EXPECT_NE(error.find("first in the loss; no weight was changed"), error.npos) << error;
    EXPECT_EQ(error.find("cast(x, f32)") != error.npos, dtype != f32) << error;
    EXPECT_TRUE(std::isfinite(gradient_norm(step)));
    EXPECT_TRUE(weights(step) == before);
  });
}

TEST(Step, ALossThatIsNotFiniteChangesNoWeight) {
  expect_unchanged({.dp = 1}, f32);
  expect_unchanged({.dp = 1}, bf16);
  expect_unchanged({.dp = 2}, f32);
}

}  // namespace triax::minigpt::step_test
