#include "tests/core/matmul.h"

#include <tuple>

namespace triax {
namespace {

using namespace test::products;

TEST_P(MatmulTest, EveryDTypeLayoutAndResult) {
  const int64_t m = 19, n = 37, k = 23;
  for (DType dtype : floats)
    for (Layout la : {plain, transposed, spaced})
      for (Layout lb : {plain, transposed, spaced})
        for (Layout lc : {plain, transposed, spaced})
          for (DType out : {dtype, accumulator(dtype)})
            for (Write write : {Write::set, Write::add}) {
              SCOPED_TRACE(testing::Message() << name(dtype) << " to " << name(out) << " layouts "
                                              << la << lb << lc << " add " << int(write));
              Tensor a = laid_out({m, k}, la, dtype, 1), b = laid_out({k, n}, lb, dtype, 2);
              Tensor c = laid_out({m, n}, lc, out, 3);
              std::vector<double> expected = naive(a, b), old = doubles(c);
              if (write == Write::add)
                for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
              backend_.matmul({.a = a, .b = b, .c = c, .write = write});
              ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, k));
            }
}

TEST_P(MatmulTest, WritesNothingBesideItsResult) {
  Tensor wide = full({20, 50}, 7, f32, cpu);
  backend_.matmul({.a = values({18, 9}, f32, 1),
                   .b = values({9, 41}, f32, 2),
                   .c = wide.narrow(0, 1, 18).narrow(1, 5, 41)});
  std::vector<float> all = wide.to_host<float>();
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t j = 0; j < 50; ++j)
      if (i < 1 || i > 18 || j < 5 || j > 45) {
        ASSERT_EQ(all[size_t(i * 50 + j)], 7) << i << ' ' << j;
      }
}

TEST_P(MatmulTest, OddSizes) {
  const int64_t sizes[] = {1, 2, 3, 17, 33, 65, 127};
  uint64_t key = 0;
  for (int64_t m : sizes)
    for (int64_t n : sizes)
      for (int64_t k : sizes) {
        SCOPED_TRACE(testing::Message() << m << ' ' << n << ' ' << k);
        DType dtype = floats[key % 4];
        Layout la = Layout(key / 4 % 3), lb = Layout(key / 12 % 3);
        Tensor a = laid_out({m, k}, la, dtype, ++key), b = laid_out({k, n}, lb, dtype, ++key);
        Tensor c = full({m, n}, NAN, dtype, cpu);  // `set` must not read what was there
        backend_.matmul({.a = a, .b = b, .c = c});
        ASSERT_NO_FATAL_FAILURE(expect_near(naive(a, b), c, k));
      }
}

// Past every blocking constant: several blocks of rows, columns and depth, with remainders.
TEST_P(MatmulTest, LargeSizes) {
  for (Shape s : {Shape{301, 1100, 70}, Shape{1030, 40, 1100}, Shape{40, 1030, 1300}}) {
    Tensor a = values({s[0], s[2]}, f32, 1), b = laid_out({s[2], s[1]}, transposed, f32, 2);
    Tensor c = values({s[0], s[1]}, f32, 3);
    std::vector<double> expected = naive(a, b), old = doubles(c);
    for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
    backend_.matmul({.a = a, .b = b, .c = c, .write = Write::add});
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, s[2]));
    backend_.matmul({.a = a, .b = b, .c = c});
    for (size_t i = 0; i < old.size(); ++i) expected[i] -= old[i];
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, s[2]));
  }
}

TEST_P(MatmulTest, NothingToDoAndEmptySums) {
  for (DType dtype : floats) {
    Tensor c = full({3, 4}, 5, dtype, cpu);
    Tensor a = empty({3, 0}, dtype, cpu), b = empty({0, 4}, dtype, cpu);
    backend_.matmul({.a = a, .b = b, .c = c, .write = Write::add});
    expect_near(std::vector<double>(12, 5), c, 0);
    Tensor bias = full({4}, 2, dtype, cpu);
    backend_.matmul({.a = a, .b = b, .c = c, .bias = bias});
    expect_near(std::vector<double>(12, 2), c, 0);
    backend_.matmul({.a = a, .b = b, .c = c});
    expect_near(std::vector<double>(12, 0), c, 0);
    for (Shape s : {Shape{0, 3, 4, 5}, Shape{2, 0, 4, 5}, Shape{2, 3, 4, 0}})
      backend_.matmul({.a = empty({s[0], s[1], s[2]}, dtype, cpu),
                       .b = empty({s[0], s[2], s[3]}, dtype, cpu),
                       .c = empty({s[0], s[1], s[3]}, dtype, cpu)});
  }
}

TEST_P(MatmulTest, Batches) {
  for (DType dtype : floats) {
    Tensor a = laid_out({2, 3, 5, 7}, transposed, dtype, 1);
    Tensor b = laid_out({2, 3, 7, 6}, spaced, dtype, 2), c = empty({2, 3, 5, 6}, dtype, cpu);
    backend_.matmul({.a = a, .b = b, .c = c});
    ASSERT_NO_FATAL_FAILURE(expect_near(naive(a, b), c, 7));
    // One operand for all, and heads that stand between the other dims.
    Tensor one = values({7, 6}, dtype, 4).expand({2, 3, 7, 6});
    Tensor heads = values({2, 5, 3, 7}, dtype, 5).transpose(1, 2);
    Tensor into = empty({2, 5, 3, 6}, dtype, cpu).transpose(1, 2);
    backend_.matmul({.a = heads, .b = one, .c = into});
    ASSERT_NO_FATAL_FAILURE(expect_near(naive(heads, one), into, 7));
    Tensor left = values({1, 3, 5, 7}, dtype, 6).expand({2, 3, 5, 7});
    backend_.matmul({.a = left, .b = b, .c = c});
    ASSERT_NO_FATAL_FAILURE(expect_near(naive(left, b), c, 7));
  }
}

TEST_P(MatmulTest, BiasAndGelu) {
  auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  };
  for (DType dtype : floats)
    for (DType out : {dtype, accumulator(dtype)})
      for (Shape s : {Shape{33, 70, 45}, Shape{1, 3, 2}, Shape{1, 70, 700}, Shape{29, 65, 700},
                      Shape{70, 96, 45}}) {
        SCOPED_TRACE(testing::Message() << name(dtype) << " to " << name(out) << ' ' << str(s));
        Tensor a = values({s[0], s[2]}, dtype, 1), b = laid_out({s[2], s[1]}, transposed, dtype, 2);
        Tensor bias = values({s[1]}, dtype, 3), c = empty({s[0], s[1]}, out, cpu);
        std::vector<double> sum = naive(a, b), add = doubles(bias), y(sum.size());
        for (size_t i = 0; i < sum.size(); ++i) y[i] = gelu(sum[i] += add[i % add.size()]);
        backend_.matmul({.a = a, .b = b, .c = c, .bias = bias});
        ASSERT_NO_FATAL_FAILURE(expect_near(sum, c, s[2]));
        Tensor before = empty({s[0], s[1]}, dtype, cpu);
        backend_.matmul({.a = a, .b = b, .c = c, .bias = bias, .before = before});
        ASSERT_NO_FATAL_FAILURE(expect_near(sum, before, s[2]));
        std::vector<double> got = doubles(c);
        // Of the sums or of what is stored of them: gelu's slope stays below 1.13.
        double sums = 2 * epsilon(accumulator(dtype)) * double(s[2] + 4);
        for (size_t i = 0; i < y.size(); ++i)
          ASSERT_NEAR(y[i], got[i], sums + 2.5 * epsilon(dtype) * (1e-3 + std::abs(sum[i])));
        if (out != dtype) continue;
        Tensor again = empty(c.shape(), dtype, cpu);  // as recomputation does
        backend_.unary(Unary::gelu, before, again);
        ASSERT_EQ(doubles(again), got);
      }
}

// Decoding: the row meets columns where they lie, whole vectors of them and not.
TEST_P(MatmulTest, OneRow) {
  uint64_t key = 0;
  for (DType dtype : floats)
    for (int64_t n : {1, 3, 16, 17, 100})
      for (int64_t k : {1, 15, 32, 33, 384, 1001})
        for (Layout la : {plain, spaced})
          for (Write write : {Write::set, Write::add}) {
            SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << n << ' ' << k << " layout "
                                            << la << " add " << int(write));
            Tensor a = laid_out({1, k}, la, dtype, ++key);
            Tensor b = laid_out({k, n}, transposed, dtype, ++key);
            DType out = key % 4 ? dtype : accumulator(dtype);
            Tensor c = write == Write::add ? values({1, n}, out, 3) : full({1, n}, NAN, out, cpu);
            std::vector<double> expected = naive(a, b), old = doubles(c);
            if (write == Write::add)
              for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
            backend_.matmul({.a = a, .b = b, .c = c, .write = write});
            ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, k));
          }
}

// A linear layer's backward: dx = dy w times gelu's slope, and dw = dy^T x with dy's column sums.
TEST_P(MatmulTest, SlopesAndSums) {
  auto slope = [](double x) {
    double c = 0.7978845608028654, t = std::tanh(c * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * c * (1 + 3 * 0.044715 * x * x);
  };
  for (DType dtype : floats)
    for (Write write : {Write::set, Write::add}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ", add " << int(write));
      Tensor dy = values({33, 45}, dtype, 1), w = values({45, 70}, dtype, 2);
      Tensor h = values({33, 70}, dtype, 3), dx = values({33, 70}, dtype, 4);
      std::vector<double> expected = naive(dy, w), old = doubles(dx), at = doubles(h);
      for (size_t i = 0; i < expected.size(); ++i) {
        expected[i] *= slope(at[i]);
        if (write == Write::add) expected[i] += old[i];
      }
      backend_.matmul({.a = dy, .b = w, .c = dx, .write = write, .gelu_of = h});
      std::vector<double> got = doubles(dx);
      // The product is rounded before it meets the slope, which stays below 1.13.
      for (size_t i = 0; i < got.size(); ++i)
        ASSERT_NEAR(expected[i], got[i], 8 * epsilon(dtype) * (1 + std::abs(expected[i]))) << i;

      Tensor a = dy.transpose(0, 1), dw = values({45, 70}, accumulator(dtype), 5);
      Tensor db = values({45}, accumulator(dtype), 6), ones = full({33, 1}, 1, dtype, cpu);
      std::vector<double> products = naive(a, h), sums = naive(a, ones);
      std::vector<double> old_dw = doubles(dw), old_db = doubles(db);
      for (size_t i = 0; i < products.size() && write == Write::add; ++i) products[i] += old_dw[i];
      for (size_t i = 0; i < sums.size() && write == Write::add; ++i) sums[i] += old_db[i];
      backend_.matmul({.a = a, .b = h, .c = dw, .write = write, .row_sums = db});
      ASSERT_NO_FATAL_FAILURE(expect_near(products, dw, 33));
      ASSERT_NO_FATAL_FAILURE(expect_near(sums, db, 33));
    }
}

// Whole and cut tiles, of one pass and of several: in f32 and f64 the bits of the separate steps.
TEST_P(MatmulTest, SlopesWithinProducts) {
  for (DType dtype : floats)
    for (auto [m, k, n] : {std::tuple{28, 45, 64}, {70, 800, 50}, {64, 801, 96}, {1, 33, 40}}) {
      SCOPED_TRACE(testing::Message() << name(dtype) << ' ' << m << ' ' << k << ' ' << n);
      Tensor dy = values({m, k}, dtype, 1), w = values({k, n}, dtype, 2);
      Tensor h = values({m, n}, dtype, 3), dx = full({m, n}, NAN, dtype, cpu);
      Tensor apart = full({m, n}, NAN, dtype, cpu);
      backend_.matmul({.a = dy, .b = w, .c = dx, .gelu_of = h});
      backend_.matmul({.a = dy, .b = w, .c = apart});
      backend_.unary_backward(Unary::gelu, h, h, apart, apart, Write::set);
      std::vector<double> one = doubles(dx), other = doubles(apart);
      bool exact = dtype == f32 || dtype == f64;
      for (size_t i = 0; i < one.size(); ++i)
        ASSERT_NEAR(one[i], other[i], exact ? 0 : 3 * epsilon(dtype) * (0.1 + std::abs(one[i])));
    }
}

// Past the rows and depth whose sums stand in working memory.
TEST_P(MatmulTest, TallLowPrecision) {
  Tensor a = values({1000, 390}, f16, 1), b = laid_out({390, 33}, transposed, f16, 2);
  Tensor c = empty({1000, 33}, f16, cpu);
  backend_.matmul({.a = a, .b = b, .c = c});
  ASSERT_NO_FATAL_FAILURE(expect_near(naive(a, b), c, 390));
}

INSTANTIATE_TEST_SUITE_P(Levels, MatmulTest, testing::ValuesIn(host::levels()), level_name);

}  // namespace
}  // namespace triax
