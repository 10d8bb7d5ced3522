#include <algorithm>

#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

struct Case {
  Shape shape;  // [rows, width]
  int64_t skip;
  bool layer;  // else RMS norm
};

class CudaNorm : public CudaKernels {
 protected:
  // x around 1.5, a gamma and, for layer norm, a beta. The statistics are `f`'s to make.
  Norm inputs(const Case& c) {
    Tensor x = randn(c.shape, f64, 1);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] += 1.5;
    Shape width{c.shape[-1]};
    Norm n{exact(x.to(dtype), c.skip), exact(randn(width, dtype, 2), c.skip), {}, {}, {}, 1e-5};
    if (c.layer) n.beta = exact(randn(width, dtype, 3), c.skip);
    return n;
  }
  void add_statistics(Norm& n, const Case& c) {
    n.rstd = sevens({c.shape[0]}, sums);
    if (c.layer) n.mean = sevens({c.shape[0]}, sums);
  }
  // The same with the CPU's statistics.
  Norm known(const Case& c) {
    Norm n = inputs(c);
    add_statistics(n, c);
    host.norm(n, empty(c.shape, dtype, cpu));
    return n;
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaNorm, every_dtype(), name_of_dtype);

// f(case): of every way that a row is held: in a warp's registers or a block's, or in memory.
template <class F> void each_case(F f) {
  std::vector<Shape> shapes = {{0, 8}, {9, 768}, {3, 2056}};
  for (int64_t width : {1031, 5000, 8192, 33000}) shapes.push_back({1, width});
  for (int64_t n : odd_sizes) {
    if (n > 1) shapes.push_back({5, n});  // of a width of 1 nothing is left but rounding
    shapes.push_back({n > 100 ? 41 : n, 33});
  }
  for (const Shape& shape : shapes)
    for (int64_t skip : {0, 1})
      for (bool layer : {true, false}) {
        if (shape[-1] >= 1000 && layer == (skip == 1)) continue;
        SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : "") + (layer ? ", layer" : ", rms"));
        f(Case{shape, skip, layer});
      }
}

TEST_P(CudaNorm, Forward) {
  each_case([&](const Case& c) {
    Norm n = inputs(c);
    // The CPU's sum over a long row, where it is not made in lanes, is less exact.
    expect_equal((c.shape[-1] > 10000 ? 5 : 1) * within, [&](Outputs& on) {
      add_statistics(n, c);
      on->norm(n, on.out(c.shape, dtype, c.skip));
      on.add(n.rstd);
      if (c.layer) on.add(n.mean);
    });
  });
}

TEST_P(CudaNorm, Backward) {
  each_case([&](const Case& c) {
    Norm n = known(c);
    Tensor dy = exact(randn(c.shape, dtype, 4), c.skip);
    expect_equal(2 * within, [&](Outputs& on) {
      on->norm_backward(n, dy, on.out(c.shape, dtype, c.skip), Write::set);
      on->norm_backward(n, dy, on.out(c.shape, dtype, c.skip), Write::add);
    });
  });
}

// The parts that norm_backward() may return, but for f64, make the same weight gradients: of warps
// that have several rows, one, or none, and of blocks.
TEST_P(CudaNorm, BackwardInOnePass) {
  bool some = false;
  for (const Shape& shape : {Shape{0, 8}, {9, 256}, {45, 264}, {7, 520}, {7, 1032}, {3, 2056}})
    for (bool layer : {true, false}) {
      SCOPED_TRACE(str(shape) + (layer ? ", layer" : ", rms"));
      Norm n = known({shape, 0, layer});
      Tensor dy = exact(randn(shape, dtype, 4));
      Shape width{shape[-1]};
      expect_equal(50 * tolerance(sums), [&](Outputs& on) {
        Tensor dgamma = on.out(width, sums), dbeta = layer ? on.out(width, sums) : Tensor();
        Norm second = n;
        second.parts = on->norm_backward(n, dy, sevens(shape, dtype), Write::set);
        second.gamma = second.beta = {};
        some |= second.parts.defined();
        on->norm_backward_weights(second, dy, dgamma, dbeta, Write::add);
      });
    }
  EXPECT_EQ(some, dtype != f64);
}

TEST_P(CudaNorm, OneElementPerRow) {  // which is its own mean
  Case c{{5, 1}, 0, true};
  Norm n = inputs(c);
  Tensors y = in_any_order([&] {
    add_statistics(n, c);
    Tensor out = sevens(c.shape, dtype);
    b.norm(n, out);
    return Tensors{out, n.mean};
  });
  expect_near(y[0], doubles(n.beta.expand({5, 1})), within);
  expect_near(y[1], doubles(n.x), within);
}

TEST_P(CudaNorm, BackwardOfWeights) {
  std::vector<Shape> shapes = {{0, 8}, {1, 1031}, {5, 1000}, {300, 264}};  // pieces and groups
  for (int64_t n : odd_sizes) shapes.push_back({std::min<int64_t>(n, 200), 33});
  for (const Shape& shape : shapes)
    for (int64_t skip : {0, 1})
      for (bool layer : {true, false})
        for (Write write : {Write::set, Write::add}) {
          SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : "") + (layer ? ", layer" : ", rms"));
          Norm n = known({shape, skip, layer});
          n.gamma = n.beta = {};
          Tensor dy = exact(randn(shape, dtype, 4), skip);
          DType to = write == Write::set ? dtype : sums;
          Shape width{shape[-1]};
          expect_equal(tolerance(to) + 20 * tolerance(sums), [&](Outputs& on) {
            Tensor dgamma = on.out(width, to), dbeta = layer ? on.out(width, to) : Tensor();
            on->norm_backward_weights(n, dy, dgamma, dbeta, write);
          });
        }
}

TEST_P(CudaNorm, Channels) {
  std::vector<Shape> shapes = {{0, 8}, {1, 1031}, {300, 264}, {3, 0}, {1, 8}};
  for (int64_t n : odd_sizes) shapes.push_back({std::min<int64_t>(n, 200), 33});
  for (const Shape& shape : shapes)
    for (int64_t skip : {0, 1}) {
      SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : ""));
      Tensor x = exact(randn(shape, dtype, 1), skip), z = exact(randn(shape, dtype, 2), skip);
      Tensor k = exact(randn({4, shape[1]}, sums, 3), skip);
      expect_equal(1e-12, [&](Outputs& on) { on->channel_sums(x, z, on.out({2, shape[1]}, f64)); });
      expect_equal([&](Outputs& on) {
        on->channel_affine(x, z, k, on.out(shape, dtype, skip));
        on->channel_affine({}, z, k, on.out(shape, dtype, skip));
      });
    }
}

TEST_P(CudaNorm, OfAWidthOfZero) {
  Norm n{empty({3, 0}, dtype, cpu), empty({0}, dtype, cpu), {}, {}, sevens({3}, sums), 1e-5};
  b.norm(n, empty({3, 0}, dtype, cpu));
  b.norm_backward(n, n.x, empty({3, 0}, dtype, cpu), Write::set);
  b.norm_backward_weights(n, n.x, empty({0}, sums, cpu), {}, Write::set);
}

class CudaSoftmax : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaSoftmax, every_dtype(), name_of_dtype);

// Of every way that a row is held: in a warp's registers or a block's, or in memory.
std::vector<Shape> shapes() {
  std::vector<Shape> all = {{2, 3, 8}, {0, 8}, {5, 0}, {9, 1000}, {3, 2056}};
  for (int64_t width : {1031, 5000, 16400, 33000}) all.push_back({1, width});
  for (int64_t n : odd_sizes) {
    all.push_back({5, n});
    all.push_back({n > 100 ? 41 : n, 33});
  }
  return all;
}

TEST_P(CudaSoftmax, OfRows) {
  for (const Shape& shape : shapes())
    for (int64_t skip : {0, 1}) {
      SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : ""));
      Tensor x = exact(randn(shape, dtype, 3, 4), skip);
      expect_equal(shape[-1] > 10000 ? 3 * within : within, [&](Outputs& on) {
        on->softmax(x, on.out(shape, dtype, skip));
        on->log_softmax(x, on.out(shape, dtype, skip));
      });
    }
}

TEST_P(CudaSoftmax, Backward) {
  for (const Shape& shape : shapes())
    for (int64_t skip : {0, 1}) {
      SCOPED_TRACE(str(shape) + (skip ? ", not aligned" : ""));
      Tensor x = randn(shape, dtype, 3, 4), p = empty_like(x), l = empty_like(x);
      host.softmax(x, p);
      host.log_softmax(x, l);
      p = exact(p, skip);
      l = exact(l, skip);
      Tensor dy = exact(randn(shape, dtype, 4), skip);
      expect_equal(10 * within, [&](Outputs& on) {
        on->softmax_backward(p, dy, on.out(shape, dtype, skip));
        on->log_softmax_backward(l, dy, on.out(shape, dtype, skip));
      });
    }
}

TEST_P(CudaSoftmax, OfHugeAndMaskedLogits) {
  double big = dtype == f16 ? 6e4 : 1e30, inf = INFINITY;
  Tensor x = from_host(std::vector<double>{big, -big, -inf, big, -inf, 0, -inf, -inf}, {2, 4}, cpu);
  x = exact(x.to(dtype));
  expect_equal([&](Outputs& on) { on->softmax(x, on.out({2, 4})); });
}

class CudaRotary : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaRotary, every_dtype(), name_of_dtype);

TEST_P(CudaRotary, IsTheCpus) {
  for (int64_t tokens : {0, 3, 33, 120})
    for (int64_t width : {2, 6, 64})
      for (auto pairs : {Rotary::Pairs::halves, Rotary::Pairs::neighbours})
        for (auto turn : {Rotary::Turn::forth, Rotary::Turn::back}) {
          SCOPED_TRACE(testing::Message() << tokens << " tokens of width " << width);
          Tensor all = exact(randn({tokens, 2, 5, width}, dtype, 1));
          Rotary r{all.narrow(2, 1, 3), exact(randn({4, width}, f32, 2)), 3, pairs, turn};
          expect_equal([&](Outputs& on) { on->rotary(r, on.out(r.x.shape())); });
        }
}

}  // namespace
}  // namespace triax::test
