// correctness 37: a small GPT with given weights and tokens gives PyTorch's logits, loss, gradients
// and ten AdamW steps. The fixture is made by tests/reference/make_fixture.py.
#include "examples/minigpt/model.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/nn/state.h"
#include "triax/optim/adamw.h"
#include "triax/optim/schedule.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/data/data_parallel.h"

namespace triax::minigpt::pytorch_test {

using test::values;

/// Largest difference between `got` and what the fixture says, relative to its largest value.
double difference(const Tensor& got, const Tensor& expected) {
  auto a = values(got), b = values(expected);
  EXPECT_EQ(a.size(), b.size());
  double worst = 0, largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]));
    largest = std::max(largest, std::abs(b[i]));
  }
  return largest > 0 ? worst / largest : worst;
}

/// The bias of a key has no effect: its gradient is 0 but for rounding, which AdamW turns into
/// whole steps, so f32 leaves it out. qkv.bias is [heads, 3, head_dim].
Tensor without_key_bias(const std::string& name, const Tensor& x, int64_t heads) {
  if (!name.ends_with("qkv.bias")) return x;
  Tensor v = x.detach().view({heads, 3, x.numel() / (3 * heads)});
  return concat({v.narrow(1, 0, 1), v.narrow(1, 2, 1)}, 1);
}

struct Case {
  DType dtype;
  double tolerance;
};

class PyTorchTest : public ::testing::TestWithParam<Case> {};

TEST_P(PyTorchTest, LogitsLossGradientsAndTenSteps) {
  const DType dtype = GetParam().dtype;
  const double tolerance = GetParam().tolerance;
  parallel::run_ranks(1, [&](parallel::Communicator& world) {
    nn::TensorFile file(TRIAX_TEST_REFERENCE "/gpt.safetensors");
    auto number = [&](const char* key) { return std::stod(file.metadata().at(key)); };
    ModelConfig m{.layers = int64_t(number("layers")),
                  .heads = int64_t(number("heads")),
                  .width = int64_t(number("width")),
                  .context = int64_t(number("context")),
                  .dropout = 0,
                  .vocab = int64_t(number("vocab"))};
    Gpt model(m, parallel::TensorParallel(world));
    parallel::DataParallel data(model, world, {.dtype = dtype});
    for (auto* p : model.parameters()) copy_(p->value.detach(), file.read("weights/" + p->name));
    optim::AdamW adam(data.slots(), {.beta1 = number("beta1"),
                                     .beta2 = number("beta2"),
                                     .eps = number("eps"),
                                     .weight_decay = number("weight_decay")});
    Tensor ids = file.read("tokens"), targets = file.read("targets");
    auto expect_all = [&](const std::string& group, auto value_of) {
      for (auto* p : model.parameters()) {
        Tensor got = value_of(*p), expected = file.read(group + "/" + p->name);
        if (dtype == f32) {
          got = without_key_bias(p->name, got, m.heads);
          expected = without_key_bias(p->name, expected, m.heads);
        }
        EXPECT_LT(difference(got, expected), tolerance) << group << " of " << p->name;
      }
    };
    auto losses = values(file.read("losses")), norms = values(file.read("grad_norms"));
    for (int step = 1; step <= 10; ++step) {
      data.begin();
      if (step == 1) {
        NoGrad guard;
        Tensor logits = model({ids, {}, nn::evaluation});
        EXPECT_LT(difference(logits, file.read("logits")), tolerance);
      }
      Tensor loss = model({ids, targets, nn::evaluation}) / double(targets.numel());
      EXPECT_NEAR(loss.item(), losses[size_t(step - 1)], tolerance * loss.item()) << step;
      backward(loss);
      data.finish();
      double norm = data.norm().value;
      EXPECT_NEAR(norm, norms[size_t(step - 1)], 5 * tolerance * norm) << step;
      if (step == 1) expect_all("grads", [](auto& p) { return grad(p.value); });
      adam.step(number("lr"), optim::clip_factor(norm, number("clip")));
      if (step == 1 || step == 10)
        expect_all("step" + std::to_string(step), [](auto& p) { return p.value.detach(); });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Precisions, PyTorchTest,
                         ::testing::Values(Case{f64, 2e-7}, Case{f32, 2e-5}),
                         [](auto& test) { return name(test.param.dtype); });

}  // namespace triax::minigpt::pytorch_test
