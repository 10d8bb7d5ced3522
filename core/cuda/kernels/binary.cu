#include "core/cuda/kernels/binary.h"
#include "core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

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
