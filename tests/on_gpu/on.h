#pragma once
#include <functional>

#include "tests/core/kernels.h"
#include "tests/support/device.h"

namespace triax::test {

/// Where a case of ops_test.cpp runs, and what it makes there.
class On {
 public:
  On(Device where, DType of) : device(where), dtype(of), backend(triax::backend(where)) {}

  const Device device;
  const DType dtype, sums = accumulator(dtype);
  Backend& backend;

  Tensor in(const Shape& shape, uint64_t seed, double spread = 1) const {
    return in(shape, seed, dtype, spread);
  }
  Tensor in(const Shape& shape, uint64_t seed, DType of, double spread = 1) const {
    return randn(shape, of, seed, spread).to(device);
  }
  /// Numbers in [0, below), in no order, many of them equal.
  Tensor ids(const Shape& shape, int64_t below, DType of = i32) const {
    std::vector<int64_t> v(size_t(shape.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = int64_t(i * i + i / 3) % below;
    return from_host(v, shape, cpu).to(of).to(device);
  }
  Tensor mask(const Shape& shape) const { return ids(shape, 2, u8); }

  /// An output, 7 everywhere: what it becomes is compared. It lies in the middle of more 7s, at an
  /// address that is no multiple of 16 if `skip` is odd.
  Tensor out(const Shape& shape, DType of, int64_t skip = 0) {
    int64_t n = shape.numel();
    Tensor whole = full({n + 2 * border + skip}, 7, of, device);
    outputs_.push_back({whole, skip, whole.narrow(0, border + skip, n).view(shape)});
    return outputs_.back().view;
  }
  Tensor out(const Shape& shape) { return out(shape, dtype); }
  /// An output with values that are added to or updated.
  Tensor state(const Tensor& start) {
    Tensor x = out(start.shape(), start.dtype());
    copy_(x, start);
    return x;
  }

  /// The outputs so far, if there are still 7s around all of them; else the test has failed.
  Tensors finish() const {
    Tensors all;
    for (const Output& o : outputs_) {
      std::vector<double> v = doubles(o.whole);
      size_t first = size_t(border + o.skip), end = v.size() - size_t(border);
      for (size_t i = 0; i < v.size(); ++i)
        if ((i < first || i >= end) && v[i] != 7) {
          ADD_FAILURE() << "output " << all.size() << ": " << v[i] << " was written "
                        << (i < first ? "in front of it" : "behind it");
          break;
        }
      all.push_back(o.view);
    }
    return all;
  }

 private:
  static constexpr int64_t border = 64;  // elements; a multiple of 16 bytes
  struct Output {
    Tensor whole;
    int64_t skip;
    Tensor view;
  };
  std::vector<Output> outputs_;
};

/// What an output of dtype `to` may differ by, made of `from`. Where tensor cores add products of
/// f16 and bf16 they cut sums off, they do not round.
inline double allowed(DType to, DType from) {
  bool cut = to == f32 && size_of(from) == 2;
  return (cut ? 10 : 1) * tolerance(to);
}

/// Whether a GPU gives the same bits each time. cuDNN's backward of attention does so only where
/// the environment has TRIAX_DETERMINISTIC=1.
enum class Bits { repeat, vary };

/// A member of Backend, called on both devices with what `run` makes there.
struct Case {
  const char* name;
  double within;  ///< multiplies allowed()
  std::function<void(On& on)> run;
  Bits bits = Bits::repeat;
};
inline void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

/// Nothing, one, more than a warp, and many packs with a tail.
inline const std::vector<int64_t> sizes = {0, 1, 33, 1000};

std::vector<Case> movement_cases();
std::vector<Case> elementwise_cases();
std::vector<Case> row_cases();
std::vector<Case> token_cases();
std::vector<Case> convolution_cases();

}  // namespace triax::test
