#include <tuple>

#include "tests/core/matmul.h"
#include "triax/core/shared/team.h"

namespace triax {
namespace {

using namespace test::products;

/// Products of shapes that are cut among threads in several ways, by however many there are.
class MatmulThreads : public MatmulTest {
 protected:
  ~MatmulThreads() override { set_threads(before_); }

  /// The product of a shape in `shapes_`, of the same operands each time.
  std::vector<double> product(DType dtype, const Shape& s) {
    Tensor a = values({s[0], s[2]}, dtype, 1), b = laid_out({s[2], s[1]}, transposed, dtype, 2);
    Tensor c = full({s[0], s[1]}, NAN, accumulator(dtype), cpu);  // a freed block has old sums
    backend_.matmul({.a = a, .b = b, .c = c});
    return doubles(c);
  }

  const Shape shapes_[5] = {
      {61, 130, 900}, {300, 33, 40}, {5, 700, 70}, {1, 1, 999}, {32, 32, 4096}};

 private:
  int before_ = team_threads();
};

// Past the blocks of rows, columns and depth that tiles are multiplied in; operands that are read
// where they lie, and others; rows of memory along the depth and across it.
TEST_P(MatmulThreads, OneForLargeSizesOfBf16) {
  set_threads(1);
  for (auto [s, la, lb] : {std::tuple{Shape{64, 1088, 384}, plain, transposed},
                           {Shape{400, 704, 416}, transposed, transposed},
                           {Shape{1450, 45, 100}, transposed, plain},
                           {Shape{750, 70, 500}, transposed, plain},
                           {Shape{40, 1088, 400}, plain, plain},
                           {Shape{70, 33, 800}, plain, transposed},
                           {Shape{65, 70, 1024}, plain, transposed}}) {
    SCOPED_TRACE(str(s));
    Tensor a = laid_out({s[0], s[2]}, la, bf16, 1), b = laid_out({s[2], s[1]}, lb, bf16, 2);
    Tensor c = values({s[0], s[1]}, f32, 3), rounded = full({s[0], s[1]}, NAN, bf16, cpu);
    std::vector<double> expected = naive(a, b), old = doubles(c);
    backend_.matmul({.a = a, .b = b, .c = rounded});
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, rounded, s[2]));
    for (size_t i = 0; i < old.size(); ++i) expected[i] += old[i];
    backend_.matmul({.a = a, .b = b, .c = c, .write = Write::add});
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, s[2]));
  }
}

// Past the rows, columns and depth of a block; c in rows and in columns; the same bits for any
// number of threads.
TEST_P(MatmulThreads, SumRowsBesideProducts) {
  for (auto [m, k, n] : {std::tuple{96, 64, 64},
                         {800, 500, 40},
                         {70, 1030, 750},
                         {33, 1, 70},
                         {1, 40, 50},
                         {40, 0, 50}})
    for (Write write : {Write::set, Write::add})
      for (bool in_rows : {true, false}) {
        SCOPED_TRACE(testing::Message() << m << ' ' << k << ' ' << n << ", add " << int(write)
                                        << ", c in rows " << in_rows);
        Tensor a = values({k, m}, bf16, 1).transpose(0, 1), x = values({k, n}, bf16, 2);
        std::vector<double> expected = naive(a, full({k, 1}, 1, bf16, cpu)), first;
        std::vector<double> products = naive(a, x);
        for (double& sum : expected) sum += write == Write::add;
        for (double& sum : products) sum += 2 * (write == Write::add);
        for (int threads : {1, 2, 3}) {
          set_threads(threads);
          Tensor db = full({m}, 1, f32, cpu), dw = full({m, n}, 2, f32, cpu);
          if (!in_rows) dw = full({n, m}, 2, f32, cpu).transpose(0, 1);
          backend_.matmul({.a = a, .b = x, .c = dw, .write = write, .row_sums = db});
          ASSERT_NO_FATAL_FAILURE(expect_near(products, dw, k + 1));
          ASSERT_NO_FATAL_FAILURE(expect_near(expected, db, k + 1));
          if (first.empty()) first = doubles(db);
          EXPECT_EQ(first, doubles(db)) << threads << " threads";
        }
      }
}

// What lies behind the last column of a stays out, whether rows are packed or loaded directly.
TEST_P(MatmulThreads, ReadNoFurtherThanTheDepth) {
  for (int64_t depth : {384, 390, 807}) {
    Tensor wide = full({70, 832}, NAN, bf16, cpu), a = wide.narrow(1, 0, depth);
    backend_.copy(values({70, depth}, bf16, 1), a);
    Tensor b = values({depth, 40}, bf16, 2), c = full({70, 40}, NAN, f32, cpu);
    std::vector<double> expected = naive(a, b);
    backend_.matmul({.a = a, .b = b, .c = c});
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, c, depth)) << depth;
  }
}

// However many threads: the same sums in the same order.
TEST_P(MatmulThreads, DoNotChangeABit) {
  for (DType dtype : floats)
    for (const Shape& s : shapes_) {
      set_threads(1);
      std::vector<double> one = product(dtype, s);
      for (int threads : {2, 3, 5}) {
        set_threads(threads);
        EXPECT_EQ(threads_here(), threads);
        EXPECT_EQ(one, product(dtype, s)) << threads << " threads, " << name(dtype) << str(s);
      }
    }
}

TEST_P(MatmulThreads, AsManyRepeatEveryBit) {
  for (DType dtype : floats)
    for (const Shape& s : shapes_)
      for (int threads : {1, 2, 3, 5}) {
        set_threads(threads);
        EXPECT_EQ(product(dtype, s), product(dtype, s)) << threads << " threads, " << name(dtype);
      }
}

// In a share of other work there is one thread.
TEST_P(MatmulThreads, MayBeFewerThanAskedFor) {
  const Shape s{61, 130, 900};
  for (DType dtype : floats) {
    Tensor a = values({s[0], s[2]}, dtype, 1), b = laid_out({s[2], s[1]}, transposed, dtype, 2);
    std::vector<double> expected = naive(a, b);
    Tensor inside = full({s[0], s[1]}, NAN, accumulator(dtype), cpu);
    set_threads(7);
    in_team(2, [&](int share) {
      if (share == 1) backend_.matmul({.a = a, .b = b, .c = inside});
    });
    ASSERT_NO_FATAL_FAILURE(expect_near(expected, inside, s[2]));
    EXPECT_EQ(team_threads(), 7);
  }
}

INSTANTIATE_TEST_SUITE_P(Levels, MatmulThreads, testing::ValuesIn(host::levels()), level_name);

}  // namespace
}  // namespace triax
