#include "parallel/tensor/dropout.h"

#include "autograd/ops.h"
#include "core/check.h"

namespace triax::parallel {

Tensor Dropout::operator()(const Tensor& x, const nn::Batch& batch, int64_t rows_each) const {
  if (!drops(batch)) return x;
  auto dropped = [&](const Tensor& rows, int64_t first) {
    return nn::Dropout::operator()(rows, nn::serial_of_row(batch, rows_each, first));
  };
  int64_t samples = tp_.samples_apart(), share = x.size(0) / samples;
  if (samples == 1) return dropped(x, tp_.first_row(share));
  check(share * tp_.size() == rows_each,
        "dropout: {} rows of each of {} samples on {} ranks; expected {} over all ranks", share,
        samples, tp_.size(), rows_each);
  Tensors parts = split(x, 0, std::vector<int64_t>(size_t(samples), share));
  for (int64_t i = 0; i < samples; ++i)
    parts[size_t(i)] = dropped(parts[size_t(i)], i * rows_each + tp_.rank() * share);
  return concat(parts, 0);
}

}  // namespace triax::parallel
