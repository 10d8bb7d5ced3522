#include "triax/core/cuda/kernels/tensors.h"
#include "triax/core/functors/binary.h"
#include "triax/core/random.h"

namespace triax::cuda::TRIAX_TARGET {

template <class F, class T> struct BinaryForward {
  TRIAX_HD T operator()(T a, T b) const { return convert<T>(F::forward(load(a), load(b))); }
};

/// T: an unsigned integer as large as an element.
template <class T> struct WhereForward {
  TRIAX_HD T operator()(uint8_t mask, T a, T b) const { return mask != 0 ? a : b; }
};

/// y = x * mask over [rows, width]. Four neighbouring columns share one Philox call, so a thread
/// takes four at a time; `groups` of them touch a row. `packed`: all groups lie within their rows
/// and may be moved as packs.
template <class T> struct Dropout {
  static constexpr int threads = 256;
  const T* x;
  T* y;
  random::Mask mask;
  const int64_t* shift;  ///< of the mask's rows; null: none
  int64_t rows, width, groups;
  bool packed;

  TRIAX_HD void operator()(const Thread& t) const {
    int64_t first = mask.row + (shift ? *shift : 0);
    int64_t skip = mask.column & 3;  // columns of a row's first group in front of the row
    for (int64_t i = t.global(); i < rows * groups; i += t.globals()) {
      int64_t r = i / groups, g = i - r * groups;
      random::Words w =
          random::philox(mask.key, uint64_t(first + r), uint64_t(mask.column) / 4 + uint64_t(g));
      uint32_t words[4] = {w.x, w.y, w.z, w.w};
      if (packed) {
        Pack<T, 4> p = load_pack<4>(x + 4 * i);
#pragma unroll
        for (int k = 0; k < 4; ++k) p.at[k] = times(p.at[k], words[k]);
        store_pack(y + 4 * i, p);
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          int64_t c = 4 * g + k - skip;
          if (c >= 0 && c < width) y[r * width + c] = times(x[r * width + c], words[k]);
        }
      }
    }
  }
  TRIAX_HD T times(T value, uint32_t word) const {
    float by = random::unit(word) < mask.p ? 0.f : 1.f / (1.f - mask.p);
    return convert<T>(load(value) * Accumulator<T>(by));
  }
};

void Cuda::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_float(y.dtype(), [&]<class T>() {
    functors::Binary::visit(int(op), [&]<class F>() {
      launch_broadcast(stream(), strides_of(y, a, b),
                       operands<T, T, T>(BinaryForward<F, T>{}, y, a, b));
    });
  });
}

void Cuda::where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  visit_bits(y.dtype(), [&]<class T>() {
    launch_broadcast(stream(), strides_of(y, mask, a, b),
                     operands<T, uint8_t, T, T>(WhereForward<T>{}, y, mask, a, b));
  });
}

void Cuda::dropout(const Tensor& x, const random::Mask& mask, const Tensor& y) {
  Rows r = rows_of(y);
  int64_t groups = ((mask.column & 3) + r.width + 3) / 4;
  visit_float(y.dtype(), [&]<class T>() {
    bool packed = r.width % 4 == 0 && (mask.column & 3) == 0;
    packed = packed && packs_fit(values<T>(x), values<T>(y));
    Dropout<T> kernel{values<T>(x), values<T>(y), mask,   shifted_rows(),
                      r.rows,       r.width,      groups, packed};
    launch_map(stream(), r.rows * groups, 1, kernel);
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
