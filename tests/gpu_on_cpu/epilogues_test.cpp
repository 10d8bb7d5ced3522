// What comes after a product: inside of it by the library, or by other kernels.
#include "tests/gpu_on_cpu/products.h"
#include "triax/core/error.h"

namespace triax::test {
namespace {

class CudaEpilogues : public CudaMatmul {};

TEST_F(CudaEpilogues, Bias) {
  struct Lies {
    int64_t step, skip;  // elements between two of the bias, and in front of it
  };
  for (DType dtype : floats)
    for (DType out : {dtype, accumulator(dtype)})
      for (Layout lc : layouts)
        for (Write write : {Write::set, Write::add})
          for (Lies lies : {Lies{1, 0}, {2, 0}, {2, 1}, {1, 1}}) {
            int64_t k = lies.step == 2 && lies.skip ? 0 : 45;
            SCOPED_TRACE(testing::Message() << name(dtype) << " to " << name(out) << ", result "
                                            << lc << ", k " << k << ", step " << lies.step
                                            << ", skip " << lies.skip << ", add " << int(write));
            expect_equal([&](Device on) {
              Tensor a = randn({33, k}, dtype, 1).to(on);
              Tensor b = laid_out({k, 70}, transposed, dtype, 2, on);
              Tensor values = randn({141}, dtype, 3).to(on), c = laid_out({33, 70}, lc, out, 4, on);
              Tensor bias(values.storage(), dtype, {70}, {lies.step}, lies.skip);
              backend(on).matmul({a, b, c, write, bias});
              return Tensors{c};
            });
            if (HasFailure()) return;
          }
}

TEST_F(CudaEpilogues, BiasAndGelu) {
  for (DType dtype : floats)
    for (DType out : {dtype, accumulator(dtype)})
      for (Write write : {Write::set, Write::add})
        for (bool with_bias : {true, false})
          for (int64_t n : {64, 70})  // rows of `before` that are whole packs, and others
            for (Layout layout : {plain, spaced}) {
              SCOPED_TRACE(testing::Message()
                           << name(dtype) << " to " << name(out) << ", n " << n << ", layout "
                           << layout << ", bias " << with_bias << ", add " << int(write));
              expect_equal([&](Device on) {
                Tensor a = randn({33, 45}, dtype, 1).to(on);
                Tensor b = laid_out({45, n}, transposed, dtype, 2, on);
                Tensor bias = with_bias ? randn({n}, dtype, 3).to(on) : Tensor{};
                Tensor c = laid_out({33, n}, layout, out, 4, on);
                Tensor before = laid_out({33, n}, layout, dtype, 5, on);
                backend(on).matmul({a, b, c, write, bias, before});
                return Tensors{c, before};
              });
              if (HasFailure()) return;
            }
}

// The residual is added inside of the product where the library can: not in f64 beside a bias, nor
// from an address that is no multiple of 16.
TEST_F(CudaEpilogues, AddsTheResidualInside) {
  for (DType dtype : floats)
    for (bool with_bias : {true, false})
      for (int64_t skip : {0, 1}) {
        SCOPED_TRACE(testing::Message()
                     << name(dtype) << ", bias " << with_bias << ", skip " << skip);
        auto run = [&](Device on) {
          Tensor a = randn({32, 48}, dtype, 1).to(on), b = randn({48, 64}, dtype, 2).to(on);
          Tensor bias = with_bias ? randn({64}, dtype, 3).to(on) : Tensor{};
          Tensor values = randn({32 * 64 + 1}, dtype, 4).to(on), c = empty({32, 64}, dtype, on);
          Tensor rest(values.storage(), dtype, {32, 64}, {64, 1}, skip);
          backend(on).matmul_onto({.a = a, .b = b, .c = c, .bias = bias}, rest);
          return Tensors{c, rest};
        };
        expect_equal(run);
        bool inside = skip == 0 && !(with_bias && dtype == f64);
        EXPECT_EQ(asked([&] { run(gpu); }).onto_others, inside);
      }
}

TEST_F(CudaEpilogues, LeavesEpiloguesToTheLibraryWhereItCan) {
  auto epilogues = [&](DType dtype, int64_t n, bool gelu) {
    Tensor a = randn({32, 48}, dtype, 1).to(gpu), b = randn({48, n}, dtype, 2).to(gpu);
    Tensor bias = randn({n}, dtype, 3).to(gpu), c = empty({32, n}, dtype, gpu);
    Tensor before = gelu ? empty_like(c) : Tensor{};
    backend(gpu).matmul({a, b, c, Write::set, bias, before});  // decides
    return asked([&] { backend(gpu).matmul({a, b, c, Write::set, bias, before}); }).epilogues;
  };
  EXPECT_EQ(epilogues(bf16, 64, false), (Counts{0, 1}));
  EXPECT_EQ(epilogues(f32, 64, false), (Counts{0, 1}));
  EXPECT_EQ(epilogues(f64, 64, false), (Counts{1}));
  EXPECT_EQ(epilogues(bf16, 64, true), (Counts{0, 0, 0, 1}));
  EXPECT_EQ(epilogues(f16, 64, true), (Counts{0, 0, 0, 1}));
  EXPECT_EQ(epilogues(bf16, 68, true), (Counts{0, 1}));  // rows of `before` are no packs
  EXPECT_EQ(epilogues(f32, 64, true), (Counts{0, 1}));
}

/// The products of a linear layer's backward: dx = dy w times gelu's slope at h, or dw = dy^T x and
/// the sums of dy's columns.
struct Backward {
  Tensor dy, w, x, h;
  Backward(int64_t rows, int64_t n, DType dtype, Device on)
      : dy(randn({rows, 48}, dtype, 1).to(on)),
        w(randn({48, n}, dtype, 2).to(on)),
        x(randn({rows, n}, dtype, 3).to(on)),
        h(randn({rows, n}, dtype, 4).to(on)) {}
  void input(const Tensor& dx, Write write) const {
    backend(dx).matmul({.a = dy, .b = w, .c = dx, .write = write, .gelu_of = h});
  }
  void weights(const Tensor& dw, const Tensor& db, Write write) const {
    backend(dw).matmul({.a = dy.transpose(0, 1), .b = x, .c = dw, .write = write, .row_sums = db});
  }
};

/// Products are timed, and those with more inside are the fastest.
void make_inside_faster() {
  for (DType t : floats) cuda::set_tuning(t, Tuning::timed);
  gpu_on_cpu::set_blas_habits({.ms = {2, 2, 2}, .more_ms = -2});
}

TEST_F(CudaEpilogues, SlopesAndSums) {
  for (bool timed : {false, true}) {
    if (timed) make_inside_faster();
    for (DType dtype : floats)
      for (Write write : {Write::set, Write::add})
        for (int64_t rows : {0, 1, 33, 64})
          for (int64_t n : {0, 64, 70}) {
            SCOPED_TRACE(testing::Message() << name(dtype) << ", rows " << rows << ", n " << n
                                            << ", add " << int(write) << ", timed " << timed);
            expect_equal([&](Device on) {
              Backward of(rows, n, dtype, on);
              Tensor dx = randn({rows, n}, dtype, 5).to(on);
              Tensor dw = randn({48, n}, accumulator(dtype), 6).to(on);
              Tensor db = randn({48}, accumulator(dtype), 7).to(on);
              of.input(dx, write);
              of.weights(dw, db, write);
              return Tensors{dx, dw, db};
            });
            if (HasFailure()) return;
          }
  }
}

TEST_F(CudaEpilogues, LeavesSlopesAndSumsToTheLibraryWhereThatPays) {
  auto epilogues = [&](DType dtype, int64_t n, Write write) {
    Backward of(32, n, dtype, gpu);
    Tensor dx = zeros({32, n}, dtype, gpu), dw = zeros({48, n}, accumulator(dtype), gpu);
    Tensor db = zeros({48}, accumulator(dtype), gpu);
    auto run = [&] { of.input(dx, write), of.weights(dw, db, write); };
    run();  // decides
    return asked(run).epilogues;
  };
  EXPECT_EQ(epilogues(bf16, 64, Write::set), (Counts{1, 0, 0, 0, 1}));  // sums only by the clock
  make_inside_faster();
  EXPECT_EQ(epilogues(bf16, 64, Write::set), (Counts{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(epilogues(f16, 64, Write::set), (Counts{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(epilogues(bf16, 64, Write::add), (Counts{1, 0, 0, 0, 0, 1}));  // dx += is another op
  EXPECT_EQ(epilogues(bf16, 68, Write::set), (Counts{1, 0, 0, 0, 0, 1}));  // rows are no packs
  EXPECT_EQ(epilogues(f32, 64, Write::set), (Counts{1, 0, 0, 0, 0, 1}));
  EXPECT_EQ(epilogues(f64, 64, Write::set), (Counts{2}));
}

/// All memory but pieces of less than `least` bytes.
Tensors hoard(int64_t least) {
  Tensors all;
  for (int64_t bytes = int64_t{1} << 30; bytes >= least;) try {
      all.push_back(empty({bytes}, u8, gpu));
    } catch (const Error&) {
      bytes /= 2;
    }
  return all;
}

TEST_F(CudaEpilogues, WithoutRoomToTryTheyStayOutside) {
  make_inside_faster();
  Tensor dy = randn({8, 1000}, bf16, 1).to(gpu), x = randn({8, 1008}, bf16, 2).to(gpu);
  Tensor dw = full({1000, 1008}, 0, f32, gpu), db = full({1000}, 0, f32, gpu);
  auto run = [&] {
    backend(gpu).matmul(
        {.a = dy.transpose(0, 1), .b = x, .c = dw, .write = Write::add, .row_sums = db});
  };
  {
    Tensors hoarded = hoard(1 << 20);
    run();
  }
  trim_memory();
  EXPECT_EQ(asked(run).epilogues, (Counts{1}));
}

TEST_F(CudaEpilogues, DoesItselfWhatTheLibraryRefuses) {
  gpu_on_cpu::set_blas_habits({.knows_epilogues = false});
  for (DType dtype : floats) {
    BlasCounts counts = asked([&] {
      expect_equal([&](Device on) {
        Tensor a = randn({24, 40}, dtype, 1).to(on), b = randn({40, 56}, dtype, 2).to(on);
        Tensor bias = randn({56}, dtype, 3).to(on), c = empty({24, 56}, dtype, on);
        Tensor d = empty_like(c), before = empty_like(c);
        backend(on).matmul({a, b, c, Write::set, bias});
        backend(on).matmul({a, b, d, Write::set, bias, before});
        Backward of(40, 56, dtype, on);
        Tensor dx = empty({40, 56}, dtype, on), dw = empty({48, 56}, accumulator(dtype), on);
        Tensor db = empty({48}, accumulator(dtype), on);
        of.input(dx, Write::set), of.weights(dw, db, Write::set);
        return Tensors{c, d, before, dx, dw, db};
      });
    });
    EXPECT_EQ(counts.epilogues, (Counts{counts.total()}));
  }
}

TEST_F(CudaEpilogues, MoreInsideOnlyWhereThatIsFaster) {
  cuda::set_tuning(bf16, Tuning::timed);
  for (bool slow : {true, false}) {
    int64_t n = slow ? 32 : 40;
    gpu_on_cpu::set_blas_habits({.ms = {20, 20, 20}, .more_ms = slow ? 20. : -20.});
    Tensor a = randn({16, 24}, bf16, 1).to(gpu), b = randn({24, n}, bf16, 2).to(gpu);
    Tensor c = empty({16, n}, bf16, gpu), before = empty_like(c);
    backend(gpu).matmul({a, b, c, Write::set, {}, before});
    BlasCounts counts = asked([&] { backend(gpu).matmul({a, b, c, Write::set, {}, before}); });
    EXPECT_EQ(counts.epilogues[2], slow ? 0 : 1);
    EXPECT_EQ(counts.total(), 1);

    Backward of(24, n, bf16, gpu);
    Tensor dx = empty({24, n}, bf16, gpu), dw = full({48, n}, 0, f32, gpu);
    Tensor db = full({48}, 0, f32, gpu);
    auto run = [&] { of.input(dx, Write::set), of.weights(dw, db, Write::add); };
    run();
    Tensor once = clone(dw);
    counts = asked(run);
    EXPECT_EQ(counts.epilogues[4] + counts.epilogues[5], slow ? 0 : 2);
    EXPECT_EQ(counts.total(), 2);
    std::vector<double> twice = doubles(once.to(cpu));  // what was tried added nothing
    for (double& x : twice) x *= 2;
    expect_near(dw.to(cpu), twice, tolerance(f32));
  }
}

}  // namespace
}  // namespace triax::test
