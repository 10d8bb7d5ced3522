#pragma once
#include <cstdlib>

#include "tests/core/kernels.h"
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/runtime/emulation.h"

namespace triax::test {

/// Blocks exactly as large as asked for, so that AddressSanitizer sees a byte past their end.
class ExactAllocator : public Allocator {
 public:
  void* allocate(size_t bytes) override { return ::operator new(bytes); }
  void deallocate(void* data, size_t) noexcept override { ::operator delete(data); }
};

/// A copy of contiguous `x` in such a block, `skip` elements from its begin: with 1 no address is
/// a multiple of 16.
inline Tensor exact(const Tensor& x, int64_t skip = 0) {
  size_t bytes = x.bytes() + size_t(skip) * size_of(x.dtype());
  auto storage = std::make_shared<Storage>(bytes, cpu, std::make_shared<ExactAllocator>());
  Tensor copy(storage, x.dtype(), x.shape(), contiguous_strides(x.shape()), skip);
  copy_(copy, x);
  return copy;
}

/// Exact memory of x's shape that holds 7 everywhere.
inline Tensor sevens(const Shape& shape, DType dtype, int64_t skip = 0) {
  return exact(full(shape, 7, dtype, cpu), skip);
}

/// Sizes that are no multiples of a warp or a pack.
inline const std::vector<int64_t> odd_sizes = {0, 1, 31, 33, 1000};

/// f() makes new tensors and returns them; whatever the order of threads and blocks, the bits must
/// be the same, and something must have been launched.
template <class F> Tensors in_any_order(F f) {
  using cuda::emulation::Order;
  int64_t before = cuda::emulation::launches();
  cuda::emulation::set_order(Order::forward);
  Tensors first = f();
  for (Order order : {Order::reversed, Order::shuffled}) {
    cuda::emulation::set_order(order);
    Tensors again = f();
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_TRUE(same_bits(first[i], again[i])) << "order " << int(order) << ", output " << i;
  }
  cuda::emulation::set_order(Order::forward);
  bool some = !first.empty() && first[0].numel() > 0;
  EXPECT_TRUE(!some || cuda::emulation::launches() > before) << "nothing was launched";
  return first;
}

/// Calls of a backend, and the outputs that are compared.
struct Outputs {
  Backend& backend;
  DType dtype;
  Tensors all = {};
  Backend* operator->() const { return &backend; }
  Tensor add(const Tensor& x) { return all.emplace_back(x); }
  Tensor out(const Shape& shape, DType of, int64_t skip = 0) {
    return add(sevens(shape, of, skip));
  }
  Tensor out(const Shape& shape) { return out(shape, dtype); }
};

/// A kernel test in every float dtype, of the emulated backend `b` against the CPU's, `host`.
class CudaKernels : public testing::TestWithParam<DType> {
 protected:
  cuda::emulated::Cuda b{0};
  Backend& host = backend(cpu);
  DType dtype = GetParam();
  DType sums = accumulator(dtype);
  double within = tolerance(dtype);

  /// The outputs of f(outputs): emulated, in any order, they equal the CPU's.
  template <class F> void expect_equal(double difference, F f) {
    auto outputs_on = [&](Backend& backend) {
      Outputs made{backend, dtype};
      f(made);
      return made.all;
    };
    Tensors got = in_any_order([&] { return outputs_on(b); }), expected = outputs_on(host);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], doubles(expected[i]), difference);
  }
  template <class F> void expect_equal(F f) { expect_equal(within, f); }
};

inline std::string name_of_dtype(const testing::TestParamInfo<DType>& info) {
  return name(info.param);
}
inline auto every_dtype() { return testing::Values(f32, f64, f16, bf16); }

}  // namespace triax::test
