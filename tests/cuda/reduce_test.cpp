#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaReduce : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaReduce, every_dtype(), name_of_dtype);

struct Case {
  Shape x, y;
};

std::vector<Case> cases() {
  std::vector<Case> all = {{{3, 5, 33}, {3, 5, 33}},
                           {{3, 5, 33}, {3, 1, 33}},
                           {{3, 5, 33}, {1, 5, 1}},
                           {{3, 5, 33}, {1, 1, 1}},
                           {{4, 1, 31}, {1, 1, 31}},
                           {{0, 4}, {1, 4}},
                           {{4, 0}, {4, 1}},
                           {{}, {}},
                           {{700, 3}, {1, 3}},
                           {{64, 32}, {1, 32}},
                           {{2, 300, 264}, {2, 1, 264}},
                           {{3, 65, 7, 45}, {3, 1, 7, 45}},
                           {{2, 20000}, {2, 1}},
                           {{2, 3, 2, 3}, {1, 3, 1, 3}}};
  for (int64_t n : odd_sizes) {
    all.push_back({{n}, {1}});
    all.push_back({{n, 33}, {1, 33}});
    all.push_back({{3, n}, {3, 1}});
  }
  return all;
}

TEST_P(CudaReduce, Sum) {
  for (const Case& c : cases())
    for (Write write : {Write::set, Write::add})
      for (DType to : {dtype, sums}) {
        if (dtype != sums && to == sums && write == Write::set) continue;  // as with `add`
        SCOPED_TRACE(str(c.x) + " to " + str(c.y));
        Tensor x = exact(randn(c.x, dtype, 5), c.x.numel() % 2);
        expect_equal(10 * within, [&](Outputs& on) { on->sum(x, on.out(c.y, to), write); });
      }
}

TEST_P(CudaReduce, Max) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(str(c.x) + " to " + str(c.y));
    Tensor x = exact(randn(c.x, dtype, 5)), holes = exact(x);
    if (x.numel() > 3) fill_(holes.view({-1}).narrow(0, 2, 1), NAN);
    expect_equal(0, [&](Outputs& on) {
      on->max(x, on.out(c.y));
      on->max(holes, on.out(c.y));
    });
  }
}

TEST_P(CudaReduce, SquaresOfNothing) {
  Tensor out = sevens({2}, f64);
  b.squares(empty({0}, dtype, cpu), out);
  expect_near(out, {7, 7}, 0);
}

TEST_P(CudaReduce, SquaresCountWhatIsNotFinite) {
  for (int64_t n : {1, 31, 33, 1000, 40000})
    for (int holes : {0, 2}) {
      Tensor x = exact(randn({n}, dtype, 6));
      if (holes && n > 5) {
        fill_(x.narrow(0, 1, 1), NAN);
        fill_(x.narrow(0, n - 1, 1), INFINITY);
      }
      expect_equal(1e-12, [&](Outputs& on) {
        Tensor out = sevens({2}, f64);
        on->squares(x, out);
        on.add(holes ? out.narrow(0, 1, 1) : out);
      });
    }
}

}  // namespace
}  // namespace triax::test
