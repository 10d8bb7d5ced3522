#include "core/cuda/kernels/binary.h"
#include "core/cuda/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

void Cuda::binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) {
  Strides<3> strides = strides_of(y, a, b);
  int64_t n = y.numel();
  visit_float(y.dtype(), [&]<class T>() {
    const T *pa = values<T>(a), *pb = values<T>(b);
    T* to = values<T>(y);
    functors::Binary::visit(int(op), [&]<class F>() {
      if (strides.contiguous())
        launch_map(stream(), n, pack_size<T>(), BinaryForward<F, T>{pa, pb, to, n});
      else if (strides.packs(pack_size<T>()) && packs_fit(pa, pb, to))
        launch_each(stream(), strides.in_packs(pack_size<T>()),
                    BinaryPack<F, T>{pa, pb, to, strides.repeats(1), strides.repeats(2)});
      else launch_each(stream(), strides, BinaryElement<F, T>{pa, pb, to});
    });
  });
}

void Cuda::where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) {
  Strides<4> strides = strides_of(y, mask, a, b);
  int64_t n = y.numel();
  const uint8_t* m = values<uint8_t>(mask);
  visit_bits(y.dtype(), [&]<class T>() {
    const T *pa = values<T>(a), *pb = values<T>(b);
    T* to = values<T>(y);
    if (strides.contiguous())
      launch_map(stream(), n, pack_size<uint8_t>(), WhereForward<T>{m, pa, pb, to, n});
    else if (strides.packs(pack_size<uint8_t>()) && packs_fit(m, pa, pb, to))
      launch_each(
          stream(), strides.in_packs(pack_size<uint8_t>()),
          WherePack<T>{m, pa, pb, to, strides.repeats(1), strides.repeats(2), strides.repeats(3)});
    else launch_each(stream(), strides, WhereElement<T>{m, pa, pb, to});
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
