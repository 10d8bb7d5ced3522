#include "parallel/tensor/dropout.h"

#include "autograd/ops.h"

namespace triax::parallel {

Tensor Dropout::operator()(const Tensor& x, const nn::Batch& batch, int64_t rows_each) const {
  int64_t samples = tp_.samples_apart(), each = x.size(0) / samples;
  auto dropped = [&](const Tensor& rows, int64_t first) {
    return nn::Dropout::operator()(rows, nn::serial_of_row(batch, rows_each, first));
  };
  if (samples == 1 || !drops(batch)) return dropped(x, tp_.first_row(x.size(0)));
  Tensors parts = split(x, 0, std::vector<int64_t>(size_t(samples), each));
  for (int64_t i = 0; i < samples; ++i)
    parts[size_t(i)] = dropped(parts[size_t(i)], i * rows_each + tp_.rank() * each);
  return concat(parts, 0);
}

}  // namespace triax::parallel
