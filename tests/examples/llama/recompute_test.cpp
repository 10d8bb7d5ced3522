// Selective recomputation in Llama's blocks: the same bits as without on every mesh, and what it
// keeps by the memory counter, against the closed forms.
#include "examples/llama/llama.h"
#include "tests/examples/minigpt/minigpt_run.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"

namespace triax::recompute_test {

using minigpt::Layout;
using parallel::Recompute;
using parallel::Trace;
using parallel::Wholes;

constexpr int64_t context = 8;

LlamaConfig small(int64_t vocab = 13) {
  return {.layers = 2,
          .width = 32,
          .heads = 4,
          .kv_heads = 2,
          .hidden = 24,
          .context = context,
          .vocab = vocab};
}

/// Blocks that differ in what is made again: with norms of queries and keys, and with experts.
std::vector<std::pair<const char*, LlamaConfig>> kinds() {
  LlamaConfig plain = small(), heads = small(), all = small(), experts = small();
  heads.qk_norm = LlamaConfig::QkNorm::head;
  all.qk_norm = LlamaConfig::QkNorm::all;
  experts.router.experts = 4;
  experts.shared_experts = 1;
  LlamaConfig gate = experts;
  gate.shared_gate = true;
  return {{"plain", plain},
          {"norm of each head", heads},
          {"norm of all heads", all},
          {"experts", experts},
          {"experts, shared gate", gate}};
}

Trace run(const LlamaConfig& c, const Layout& layout, DType dtype, Recompute recompute) {
  minigpt::Job job;
  job.model = {.context = context, .vocab = c.vocab};
  job.set(layout);
  job.step().recompute = recompute;
  job.step().dtype = dtype;
  job.step().micro_batch = 2;
  job.step().global_batch = 8;
  job.train.steps = 2;
  parallel::Task task = task_of(job);
  task.build = [c](auto& tp) { return std::make_unique<Llama>(c, tp); };
  return trace(task, job.train);
}

void expect_equal(const Wholes& a, const Wholes& b) {
  ASSERT_EQ(a.size(), b.size());
  for (auto& [name, whole] : a) EXPECT_EQ(whole.values, b.at(name).values) << name;
}

TEST(LlamaRecompute, ChangesNoBit) {
  for (auto& [name, config] : kinds())
    for (DType dtype : {f32, bf16})
      for (const Layout& layout :
           {Layout{.dp = 1},
            {.dp = 2, .tp = 2, .zero = 3},
            {.dp = 1, .pp = 2, .tp = 2, .sequence_parallel = true, .schedule = "zb-h1"}}) {
        SCOPED_TRACE(fmt::format("{}, {}: {}", name, dtype, describe(layout)));
        Trace off = run(config, layout, dtype, Recompute::off),
              on = run(config, layout, dtype, Recompute::selective);
        ASSERT_EQ(off.steps.size(), on.steps.size());
        for (size_t i = 0; i < off.steps.size(); ++i) {
          EXPECT_EQ(off.steps[i].loss, on.steps[i].loss);
          expect_equal(off.steps[i].gradients, on.steps[i].gradients);
          expect_equal(off.steps[i].state, on.steps[i].state);
        }
        EXPECT_EQ(autograd::live_nodes(), 0);
      }
}

/// Bytes that a block has kept when its forward is done, its output too.
int64_t kept(const LlamaConfig& c, DType dtype, Recompute recompute, int64_t samples) {
  auto alone = parallel::single_rank();
  Llama model(c, parallel::TensorParallel(*alone));
  model.materialize(cpu, dtype, 1);
  nn::Batch batch{.input = zeros({samples, context}, i32, cpu)};
  const nn::Layer& block = model.layers()[1];
  Tensor x = test::filled({samples * context, c.width}, 1, dtype);
  auto forward = [&] {
    return recompute == Recompute::off ? block.run(x, batch) : block.selective(x, batch);
  };
  (void)forward();  // makes the table of rotary angles
  require_grad(x);
  int64_t before = memory::counter()->live();
  Tensor y = forward();
  return memory::counter()->live() - before;
}

/// docs/strategies/recomputation.md; with k of `kv_heads / heads` and f of `hidden / width`.
TEST(LlamaRecompute, KeepsWhatTheFormulaSays) {
  for (DType dtype : {f32, bf16}) {
    LlamaConfig c = small();
    double rows = 3 * context, unit = rows * double(c.width) * double(size_of(dtype));
    double k = double(c.kv_heads) / double(c.heads), f = double(c.hidden) / double(c.width);
    double statistics = rows * (8 + 4 * double(c.heads)), y = 1;
    EXPECT_EQ(double(kept(c, dtype, Recompute::off, 3)),
              unit * (6 + 3 * k + 3 * f + y) + statistics);
    EXPECT_EQ(double(kept(c, dtype, Recompute::selective, 3)),
              unit * (2 + 2 * k + 2 * f + y) + statistics);
  }
}

// Of each expert swiglu's results too: `top_k` of them for each row.
TEST(LlamaRecompute, KeepsNoResultOfSwigluOfExperts) {
  LlamaConfig c = small(), dense = small();
  c.router.experts = 4;
  c.router.top_k = 3;
  auto saved = [](const LlamaConfig& of) {
    return double(kept(of, f32, Recompute::off, 3) - kept(of, f32, Recompute::selective, 3));
  };
  double swiglu = 3 * context * double(c.hidden) * 4;
  EXPECT_EQ(saved(c) - saved(dense), (c.router.top_k - 1) * swiglu);
}

}  // namespace triax::recompute_test
