#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

struct Case {
  Shape shape;  // [rows, columns] of the slice
  int64_t first, vocab;
  double smoothing = 0;
  DType ids = i64;
  int64_t skip = 0;
};

class CudaCrossEntropy : public CudaKernels {
 protected:
  CrossEntropy inputs(const Case& c) {
    int64_t rows = c.shape[0];
    Tensor ids = empty({rows}, i64, cpu);
    for (int64_t r = 0; r < rows; ++r)
      ids.data<int64_t>()[r] = r % 5 == 3 ? -100 : (r * r + r / 3 + c.first) % c.vocab;
    return {exact(randn(c.shape, dtype, 1, 3), c.skip),
            exact(ids.to(c.ids)),
            c.first,
            c.vocab,
            -100,
            c.smoothing};
  }
  void expect_equal_entropy(const Case& c) {
    SCOPED_TRACE(str(c.shape) + " at " + std::to_string(c.first) + " of " +
                 std::to_string(c.vocab) + ", skip " + std::to_string(c.skip));
    CrossEntropy inputs = this->inputs(c);
    int64_t rows = c.shape[0];
    expect_equal(10 * tolerance(sums), [&](Outputs& on) {
      on->cross_entropy_stats(inputs, on.out({rows, 4}, sums));
    });
    Tensor stats = sevens({rows, 4}, sums), scale = exact(full({1}, 0.5, sums, cpu));
    host.cross_entropy_stats(inputs, stats);
    expect_equal([&](Outputs& on) {
      Tensor apart = on.out(c.shape, dtype, c.skip);
      CrossEntropy placed = inputs;
      placed.logits = exact(inputs.logits, c.skip);
      on->cross_entropy_losses(inputs, stats, on.out({rows}, sums));
      on->cross_entropy_backward(inputs, stats, scale, apart);
      on->cross_entropy_backward(placed, stats, scale, placed.logits);
      EXPECT_TRUE(same_bits(clone(apart), clone(placed.logits)));
    });
  }
  // In one pass as in two: where the logits are, or elsewhere.
  void expect_equal_at_once(const Case& c) {
    SCOPED_TRACE(str(c.shape) + ", skip " + std::to_string(c.skip));
    CrossEntropy inputs = this->inputs(c);
    Tensor scale = exact(full({1}, 0.5, sums, cpu));
    expect_equal([&](Outputs& on) {
      Tensor apart = on.out(c.shape, dtype, c.skip);
      Shape four{c.shape[0], 4};
      Tensor stats = sevens(four, sums), two = sevens(four, sums);
      Tensor expected = sevens(c.shape, dtype, c.skip);
      CrossEntropy placed = inputs;
      placed.logits = exact(inputs.logits, c.skip);
      on->cross_entropy_stats(inputs, two);
      on->cross_entropy_backward(inputs, two, scale, expected);
      on->cross_entropy_at_once(inputs, stats, scale, apart);
      EXPECT_TRUE(same_bits(stats, two));
      EXPECT_TRUE(same_bits(clone(apart), clone(expected)));
      on->cross_entropy_at_once(placed, stats, scale, placed.logits);
      EXPECT_TRUE(same_bits(clone(placed.logits), clone(expected)));
    });
  }
  void expect_equal_losses(int64_t rows) {
    CrossEntropy c = inputs({.shape = {rows, 3}, .first = 0, .vocab = 3, .smoothing = 0.1});
    Tensor stats = sevens({rows, 4}, sums);
    host.cross_entropy_stats(c, stats);
    expect_equal(tolerance(sums),
                 [&](Outputs& on) { on->cross_entropy_losses(c, stats, on.out({rows}, sums)); });
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaCrossEntropy, every_dtype(), name_of_dtype);

TEST_P(CudaCrossEntropy, OfEverySize) {
  for (int64_t skip : {0, 1}) {
    auto of = [&](int64_t rows, int64_t columns) {
      expect_equal_entropy({.shape = {rows, columns},
                            .first = 0,
                            .vocab = columns,
                            .ids = rows == 5 ? i32 : i64,
                            .skip = skip});
    };
    for (int64_t columns : {1, 31, 33, 1000}) of(5, columns);
    for (int64_t columns : {3001, 20000}) of(2, columns);
    for (int64_t rows : {0, 1, 31, 33})
      if (rows < 31 || skip == (rows == 31)) of(rows, 31);
  }
  expect_equal_losses(1000);
}

TEST_P(CudaCrossEntropy, OfSlicesWithPaddingAndSmoothing) {
  for (int64_t skip : {0, 1})
    for (double smoothing : {0., 0.1})
      for (auto [first, vocab] : {std::pair(0, 61), {20, 47}, {20, 1000}, {40, 33}})
        expect_equal_entropy({.shape = {5, 40},
                              .first = first,
                              .vocab = vocab,
                              .smoothing = smoothing,
                              .ids = i32,
                              .skip = skip});
}

TEST_P(CudaCrossEntropy, AtOnce) {  // the longest rows in f64 do not fit into shared memory
  for (int64_t skip : {0, 1}) {
    for (int64_t rows : {0, 5}) expect_equal_at_once({{rows, 33}, 0, 30, 0.1, i32, skip});
    for (int64_t columns : {1, 1000, 3001, 20000})
      expect_equal_at_once({{2, columns}, 0, columns, 0, i64, skip});
  }
}

TEST_P(CudaCrossEntropy, GradientElsewhereAligned) {  // than the logits are
  CrossEntropy c = inputs({.shape = {5, 64}, .first = 0, .vocab = 61});
  Tensor stats = sevens({5, 4}, sums), scale = exact(full({1}, 0.5, sums, cpu));
  host.cross_entropy_stats(c, stats);
  expect_equal([&](Outputs& on) {
    on->cross_entropy_backward(c, stats, scale, on.out({5, 64}, dtype, 1));
  });
}

TEST_P(CudaCrossEntropy, OfWhatIsNotFinite) {
  double inf = INFINITY;
  for (int64_t columns : {9, 5000}) {  // the few numbers lie far apart, or nothing but -inf
    Tensor x = full({4, columns}, -inf, f64, cpu);
    double* at = x.data<double>();
    at[5] = 3;
    at[columns - 1] = 4;
    at[columns + 2] = NAN;
    at[columns + 3] = 1;
    at[2 * columns] = inf;
    Tensor targets = exact(from_host(std::vector<int64_t>{5, 3, 0, 0}, {4}, cpu));
    CrossEntropy c{exact(x.to(dtype)), targets, 0, columns};
    expect_equal([&](Outputs& on) { on->cross_entropy_stats(c, on.out({4, 4}, sums)); });
  }
}

TEST_P(CudaCrossEntropy, OfFallingAndRisingLogits) {  // the largest so far changes always, or never
  for (double step : {-0.01, 0.01}) {
    Tensor x = empty({2, 5000}, f64, cpu);
    for (int64_t i = 0; i < x.numel(); ++i) x.data<double>()[i] = step * double(i % 5000);
    Tensor targets = exact(from_host(std::vector<int64_t>{5, 4999}, {2}, cpu));
    CrossEntropy c{exact(x.to(dtype)), targets, 0, 5000};
    expect_equal(10 * tolerance(sums), [&](Outputs& on) {
      on->cross_entropy_stats(c, on.out({2, 4}, sums));
    });
  }
}

}  // namespace
}  // namespace triax::test
