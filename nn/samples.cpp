#include "nn/samples.h"

#include <algorithm>

#include "core/check.h"
#include "core/checksum.h"

namespace triax::nn {
namespace {

/// Rows of x; index -1 gives a row of `blank`.
Tensor rows(const Tensor& x, std::span<const int64_t> indices, double blank) {
  Shape shape = x.shape();
  shape[0] = std::ssize(indices);
  Tensor y = full(shape, blank, x.dtype(), cpu);
  for (int64_t k = 0; k < shape[0]; ++k)
    if (int64_t i = indices[size_t(k)]; i >= 0) copy_(y.narrow(0, k, 1), x.narrow(0, i, 1));
  return y;
}

}  // namespace

TensorSamples::TensorSamples(const Tensor& input, const Tensor& target)
    : input_(input.detach().contiguous()), target_(target.detach().contiguous()) {
  bool count_alike = input.rank() > 0 && target.rank() > 0 && input.size(0) == target.size(0);
  check_input(
      count_alike && count() > 0 && is_index(target.dtype()) && input.device() == cpu &&
          target.device() == cpu,
      Exit::data,
      "samples: input {}, target {}; expected dim 0 of both to count samples, 1 or more, targets "
      "in i32 or i64, both on the CPU\n  For other targets derive a class from nn::Samples "
      "(nn/samples.h).",
      input, target);
  visit_index(target_.dtype(), [&]<class T>() {
    int64_t each = target_.numel() / count();
    for (const T* row = target_.data<T>(); std::ssize(weights_) < count(); row += each)
      weights_.push_back(double(each - std::count(row, row + each, T(-1))));
  });
}

Batch TensorSamples::batch(std::span<const int64_t> indices) const {
  for (int64_t i : indices)
    check(i >= -1 && i < count(), "samples: index {}; expected 0 to {}, or -1 for a blank", i,
          count() - 1);
  return {rows(input_, indices, 0), rows(target_, indices, -1)};
}

std::string TensorSamples::identity() const {
  return fmt::format(
      "input {}, target {}, crc32c {:08x}", input_, target_,
      crc32c(target_.data(), target_.bytes(), crc32c(input_.data(), input_.bytes())));
}

}  // namespace triax::nn
