#include "tests/core/kernels.h"

namespace triax::test {
namespace {

class Optimizer : public Kernels {
 protected:
  OptimizerSlot slot(int64_t n) const {
    Tensor exact = randn({n}, sums, 1);
    OptimizerSlot s{exact.to(dtype), randn({n}, sums, 2), {}, {}};
    if (dtype != sums) s.master = exact;
    else s.weight = clone(exact);
    if (n > 10) s.decayed = {{0, 2}, {5, n / 2}, {n - 3, n}};
    return s;
  }
  static OptimizerSlot copy_of(const OptimizerSlot& s) {
    return {clone(s.weight), s.grad, s.master.defined() ? clone(s.master) : Tensor(), s.decayed};
  }
  static const Tensor& exact(const OptimizerSlot& s) {
    return s.master.defined() ? s.master : s.weight;
  }
};
INSTANTIATE_TEST_SUITE_P(Cpu, Optimizer, every_level_and_dtype(), name_of);

bool decays(const OptimizerSlot& s, size_t i) {
  for (Range r : s.decayed)
    if (int64_t(i) >= r.begin && int64_t(i) < r.end) return true;
  return false;
}

TEST_P(Optimizer, AdamW) {
  for (int64_t n : {0, 1, 33, 1000, 50000}) {
    OptimizerSlot start = slot(n);
    auto run = [&] {
      OptimizerSlot s = copy_of(start);
      Tensor m = zeros({n}, sums, cpu), v = zeros({n}, sums, cpu);
      for (int64_t step = 1; step <= 3; ++step)
        b.update(s, {m, v}, AdamWRule{0.9, 0.99, 1e-8, 0.1}, {1e-2, 0.5, step});
      return Tensors{exact(s), s.weight, m, v};
    };
    Tensors got = on_any_threads(run);
    std::vector<double> w = doubles(exact(start)), grad = doubles(start.grad), m(w.size()), v = m;
    for (int step = 1; step <= 3; ++step)
      for (size_t i = 0; i < w.size(); ++i) {
        double g = grad[i] * 0.5;
        if (decays(start, i)) w[i] -= 1e-2 * 0.1 * w[i];
        m[i] = 0.9 * m[i] + 0.1 * g;
        v[i] = 0.99 * v[i] + 0.01 * g * g;
        double mhat = m[i] / (1 - std::pow(0.9, step)), vhat = v[i] / (1 - std::pow(0.99, step));
        w[i] -= 1e-2 * mhat / (std::sqrt(vhat) + 1e-8);
      }
    expect_near(got[0], w, tolerance(sums));
    expect_near(got[2], m, tolerance(sums));
    expect_near(got[3], v, tolerance(sums));
    EXPECT_TRUE(same_bits(got[1], got[0].to(dtype)));  // the weight is the master's cast
  }
}

// A shard of a flat buffer must be updated like the same elements of the whole.
TEST_P(Optimizer, AdamWOfASliceEqualsTheWhole) {
  const int64_t n = 1000, cut = 333;
  OptimizerSlot whole = slot(n), base = copy_of(whole);
  Tensor m = zeros({n}, sums, cpu), v = zeros({n}, sums, cpu);
  const AdamWRule rule{0.9, 0.99, 1e-8, 0.1};
  b.update(whole, {m, v}, rule, {.lr = 1e-2});
  auto part = [&](int64_t begin, int64_t end) {
    auto of = [&](const Tensor& x) { return x.defined() ? x.narrow(0, begin, end - begin) : x; };
    OptimizerSlot s{of(base.weight), of(base.grad), of(base.master), {}};
    for (Range r : base.decayed)
      if (r.end > begin && r.begin < end)
        s.decayed.push_back({std::max(r.begin, begin) - begin, std::min(r.end, end) - begin});
    Tensor pm = zeros({end - begin}, sums, cpu), pv = zeros_like(pm);
    b.update(s, {pm, pv}, rule, {.lr = 1e-2});
  };
  part(0, cut);
  part(cut, n);
  EXPECT_TRUE(same_bits(whole.weight, base.weight));
}

TEST_P(Optimizer, Sgd) {
  for (double momentum : {0., 0.9})
    for (auto form : {SgdRule::Form::heavy_ball, SgdRule::Form::nesterov})
      for (int64_t n : {0, 1, 33, 20000}) {
        OptimizerSlot start = slot(n);
        Tensors got = on_any_threads([&] {
          OptimizerSlot s = copy_of(start);
          Tensor velocity = full({n}, NAN, sums, cpu);  // the first step must not read it
          for (int64_t step = 1; step <= 3; ++step)
            b.update(s, {velocity}, SgdRule{momentum, 0.1, form}, {1e-2, 0.5, step});
          return Tensors{exact(s), s.weight};
        });
        std::vector<double> w = doubles(exact(start)), grad = doubles(start.grad), v(w.size());
        for (int step = 1; step <= 3; ++step)
          for (size_t i = 0; i < w.size(); ++i) {
            double g = grad[i] * 0.5 + (decays(start, i) ? 0.1 * w[i] : 0);
            v[i] = step == 1 ? g : momentum * v[i] + g;
            w[i] -= 1e-2 * (form == SgdRule::Form::nesterov ? g + momentum * v[i] : v[i]);
          }
        expect_near(got[0], w, tolerance(sums));
        EXPECT_TRUE(same_bits(got[1], got[0].to(dtype)));
      }
}

TEST_P(Optimizer, Lion) {
  for (int64_t n : {0, 1, 33, 20000}) {
    OptimizerSlot start = slot(n);
    if (n > 1) fill_(start.grad.narrow(0, 1, 1), 0);  // whose sign is 0
    Tensors got = on_any_threads([&] {
      OptimizerSlot s = copy_of(start);
      Tensor m = zeros({n}, sums, cpu);
      for (int64_t step = 1; step <= 3; ++step)
        b.update(s, {m}, LionRule{0.9, 0.99, 0.1}, {1e-2, 0.5});
      return Tensors{exact(s), m, s.weight};
    });
    std::vector<double> w = doubles(exact(start)), grad = doubles(start.grad), m(w.size());
    for (int step = 1; step <= 3; ++step)
      for (size_t i = 0; i < w.size(); ++i) {
        double g = grad[i] * 0.5, c = 0.9 * m[i] + 0.1 * g;
        w[i] -= 1e-2 * ((c > 0) - (c < 0) + (decays(start, i) ? 0.1 * w[i] : 0));
        m[i] = 0.99 * m[i] + 0.01 * g;
      }
    expect_near(got[0], w, tolerance(sums));
    expect_near(got[1], m, tolerance(sums));
    EXPECT_TRUE(same_bits(got[2], got[0].to(dtype)));
  }
}

}  // namespace
}  // namespace triax::test
