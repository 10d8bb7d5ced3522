#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaOptimizer : public CudaKernels {
 protected:
  // A slot that both backends start from; f(backend, slot, m, v) makes a step of it.
  template <class F> void expect_equal_steps(int64_t n, std::vector<Range> decayed, F f) {
    SCOPED_TRACE(testing::Message() << n << " elements, " << decayed.size() << " ranges");
    for (int64_t skip : {0, 1}) {
      Tensor weight = randn({n}, sums, 1), gradient = exact(randn({n}, sums, 2), skip);
      expect_equal([&](Outputs& on) {
        OptimizerSlot s{on.add(exact(weight.to(dtype), skip)), gradient, {}, decayed};
        if (dtype != sums) s.master = on.add(exact(weight, skip));
        Tensor m = on.add(exact(randn({n}, sums, 3), skip));
        f(on.backend, s, m, on.out({n}, sums, skip));
      });
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaOptimizer, every_dtype(), name_of_dtype);

// Every third element, from 5 on.
std::vector<Range> many(int64_t n) {
  std::vector<Range> ranges;
  for (int64_t i = 5; i + 2 < n; i += 3) ranges.push_back({i, i + 2});
  return ranges;
}

TEST_P(CudaOptimizer, AdamW) {
  AdamWRule rule{.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};
  auto run = [&](Backend& on, const OptimizerSlot& s, const Tensor& m, const Tensor& v) {
    on.update(s, {m, v}, rule, {.lr = 0.1, .grad_scale = 0.5, .step = 3});
  };
  for (int64_t n : odd_sizes) {
    expect_equal_steps(n, {}, run);
    expect_equal_steps(n, {{0, n}}, run);
    if (n > 30) expect_equal_steps(n, {{1, 9}, {17, 31}}, run);
  }
  for (int64_t n : {600, 1000, 5000}) expect_equal_steps(n, many(n), run);  // several launches
  expect_equal_steps(
      4000,
      [] {  // with the longest last in a launch
        std::vector<Range> ranges = many(605);
        ranges.push_back({620, 3001});
        ranges.push_back({3002, 3999});
        return ranges;
      }(),
      run);
}

TEST_P(CudaOptimizer, Sgd) {
  for (auto form : {SgdRule::Form::heavy_ball, SgdRule::Form::nesterov})
    for (double momentum : {0., 0.9})
      for (int64_t at : {1, 2}) {
        SgdRule rule{momentum, 0.1, form};
        for (int64_t n : odd_sizes)
          expect_equal_steps(
              n, {{n / 3, n / 2}},
              [&](Backend& on, const OptimizerSlot& s, const Tensor& m, const Tensor&) {
                if (at == 1) fill_(m, NAN);
                on.update(s, momentum == 0 ? Tensors{} : Tensors{m}, rule, {0.1, 0.5, at});
              });
      }
}

TEST_P(CudaOptimizer, Lion) {
  for (int64_t n : odd_sizes)
    expect_equal_steps(n, {{n / 3, n / 2}},
                       [](Backend& on, const OptimizerSlot& s, const Tensor& m, const Tensor&) {
                         on.update(s, {m}, LionRule{0.9, 0.99, 0.1}, {0.1, 0.5});
                       });
}

// What a decision says counts, and nothing of the step's own.
TEST_P(CudaOptimizer, DecidedOnTheDevice) {
  for (double happens : {0, 1}) {
    StepDecision d{.lr = 0.1, .step = 2, .grad_scale = 0.5, .happens = happens};
    Tensor decision = exact(from_host(values_of(d), {StepDecision::size}, cpu));
    auto run = [&](Backend& on, const OptimizerSlot& s, const Tensor& m, const Tensor&) {
      on.update(s, {m}, SgdRule{0.9, 0.1, SgdRule::Form::nesterov}, {NAN, NAN, 1, decision});
      on.update(s, {m}, LionRule{0.9, 0.99, 0.1}, {NAN, NAN, 1, decision});
    };
    expect_equal_steps(1000, {{10, 400}}, run);
  }
}

TEST_P(CudaOptimizer, Average) {
  for (int64_t n : odd_sizes)
    for (double happens : {-1, 0, 1}) {  // -1: no decision
      Tensor x = exact(randn({n}, dtype, 1)), before = randn({n}, sums, 2);
      StepDecision d{.happens = happens};
      Tensor decision = exact(from_host(values_of(d), {StepDecision::size}, cpu));
      expect_equal([&](Outputs& on) {
        Tensor average = on.add(exact(before));
        on->average(average, x,
                    {.rate = 0.25, .scale = 2, .decision = happens < 0 ? Tensor() : decision});
      });
    }
}

}  // namespace
}  // namespace triax::test
