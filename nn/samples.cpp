#include "triax/nn/samples.h"

#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"

namespace triax::nn {
namespace {

/// Returns rows of x; index -1 gives a row of `blank`.
Tensor rows(const Tensor& x, std::span<const int64_t> indices, double blank) {
  Shape shape = x.shape();
  shape[0] = std::ssize(indices);
  Tensor y = full(shape, blank, x.dtype(), cpu);
  for (int64_t k = 0; k < shape[0]; ++k)
    if (int64_t i = indices[size_t(k)]; i >= 0) copy_(y.narrow(0, k, 1), x.narrow(0, i, 1));
  return y;
}

}  // namespace

TensorSamples::TensorSamples(const Tensor& input, const Tensor& target, const Tensors& extra)
    : all_(mapped({.input = input, .target = target, .extra = extra},
                  [](const Tensor& x) { return x.detach().contiguous(); })) {
  auto right = [&](const Tensor& x) {
    return x.device() == cpu && x.rank() > 0 && x.size(0) == input.size(0);
  };
  Tensors each = tensors(all_);
  check_input(std::ranges::all_of(each, right) && count() > 0 && is_index(target.dtype()),
              Exit::data,
              "samples: input {}, target {}{}; expected dim 0 of each to count samples, 1 or more, "
              "targets in i32 or i64, all on the CPU\n  For other targets derive a class from "
              "nn::Samples (nn/samples.h).",
              input, target, extra.empty() ? "" : ", extra " + join(extra, ", "));
  visit_index(target.dtype(), [&]<class T>() {
    int64_t width = target.numel() / count();
    for (const T* row = all_.target.data<T>(); std::ssize(weights_) < count(); row += width)
      weights_.push_back(double(width - std::count(row, row + width, T(-1))));
  });
}

Batch TensorSamples::batch(std::span<const int64_t> indices) const {
  for (int64_t i : indices)
    check(i >= -1 && i < count(), "samples: index {}; expected 0 to {}, or -1 for a blank", i,
          count() - 1);
  return mapped(all_,
                [&](const Tensor& x) { return rows(x, indices, x.is(all_.target) ? -1 : 0); });
}

std::string TensorSamples::identity() const {
  uint32_t crc = 0;
  for (auto& x : tensors(all_)) crc = crc32c(x.data(), x.bytes(), crc);
  return fmt::format("input {}, target {}{}, crc32c {:08x}", all_.input, all_.target,
                     all_.extra.empty() ? "" : ", extra " + join(all_.extra, ", "), crc);
}

}  // namespace triax::nn
