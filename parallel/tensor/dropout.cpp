#include "triax/parallel/tensor/dropout.h"

#include <algorithm>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Appends rows [begin, end) of [samples][rows of a sample here] as runs of neighbours in the whole
/// micro-batch.
void append_runs(std::vector<nn::Span>& runs, const nn::Batch& batch, int64_t rows_each,
                 nn::Span rows) {
  int64_t whole = nn::whole_rows(batch, rows_each), end = rows.first + rows.count;
  for (int64_t sample = rows.first / rows_each; sample * rows_each < end; ++sample) {
    int64_t at = sample * rows_each;
    for (const nn::Span& s : nn::spans(batch, rows_each)) {
      int64_t from = std::max(rows.first, at), to = std::min(end, at + s.count);
      int64_t first = sample * whole + s.first + from - at;
      at += s.count;
      if (from >= to) continue;
      if (!runs.empty() && runs.back().first + runs.back().count == first)
        runs.back().count += to - from;
      else runs.push_back({first, to - from});
    }
  }
}

}  // namespace

Tensor Dropout::operator()(const Tensor& x, const nn::Batch& batch, int64_t rows_each) const {
  if (!drops(batch)) return x;
  int64_t samples = tp_.samples_apart(), share = x.size(0) / samples;
  check(samples == 1 || share * tp_.size() == rows_each,
        "dropout: {} rows of each of {} samples on {} ranks; expected {} over all ranks", share,
        samples, tp_.size(), rows_each);
  std::vector<nn::Span> runs;
  for (int64_t i = 0; i < samples; ++i)
    append_runs(runs, batch, rows_each,
                {samples == 1 ? tp_.first_row(share) : i * rows_each + tp_.rank() * share, share});
  int64_t whole = nn::whole_rows(batch, rows_each);
  auto dropped = [&](const Tensor& rows, int64_t first) {
    return nn::Dropout::operator()(rows, nn::serial_of_row(batch, whole, first));
  };
  if (runs.size() == 1) return dropped(x, runs[0].first);
  Tensors parts = split(x, 0, transformed(runs, &nn::Span::count));
  for (size_t i = 0; i < parts.size(); ++i) parts[i] = dropped(parts[i], runs[i].first);
  return concat(parts, 0);
}

}  // namespace triax::parallel
