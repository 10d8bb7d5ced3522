#include "triax/nn/parameter.h"

#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/random.h"
#include "triax/core/shared/team.h"

namespace triax::nn {

Shape Parameter::slice() const {
  Shape s = full;
  if (shard.count >= 0) {
    check(full.rank() >= 2 && (shard.dim > 0 || shard.length < 0) && shard.first >= 0 &&
              shard.first + shard.count <= full[0],
          "parameter {}: [{}, {}) of dim 0 of {}; expected a range inside it, and a slice of "
          "another dim",
          name, shard.first, shard.first + shard.count, full);
    s[0] = shard.count;
  }
  if (full.rank() == 0 || shard.length < 0) return s;
  check(shard.begin >= 0 && shard.begin + shard.length <= full[shard.dim],
        "parameter {}: slice [{}, {}) of dim {} of {}; expected a range inside it", name,
        shard.begin, shard.begin + shard.length, shard.dim, full);
  s[shard.dim] = shard.length;
  return s;
}

Shape Parameter::local() const {
  Shape s = slice();
  if (shard.padding == 0) return s;
  check(s.rank() > 0 && shard.dim == 0 && shard.padding > 0,
        "parameter {}: padding {} of dim {}; expected 0, or rows behind a slice of dim 0", name,
        shard.padding, shard.dim);
  s[0] += shard.padding;
  return s;
}

void Parameter::fill(const Tensor& to) const {
  Shape shape = slice();
  check(to.shape() == local(), "parameter {}: fill of {}; expected {}", name, to, local());
  if (shard.padding > 0) {
    fill_(to.narrow(0, shape[0], shard.padding), 0);
    return fill_slice(to.narrow(0, 0, shape[0]));
  }
  fill_slice(to);
}

void Parameter::fill_slice(const Tensor& to) const {
  if (init.std == 0) return fill_(to, init.mean);
  Shape shape = to.shape();
  // A slice of `dim` is, for each index of the dims before it, one run of the full tensor.
  int64_t inner = 1, whole = full.rank() ? full[shard.dim] : 1, before = 0;
  for (int d = shard.dim + 1; d < full.rank(); ++d) inner *= full[d];
  int64_t run = (full.rank() ? shape[shard.dim] : 1) * inner;
  if (shard.count >= 0) {  // behind whole matrices, however the slice cuts each
    before = shard.first * (full.numel() / full[0]);
    if (shard.dim == 0) whole = shape[0];
  }
  // By pieces: a copy of the whole would take as much memory again.
  Tensor flat = to.view({-1}), some = empty({std::min<int64_t>(flat.numel(), 8192)}, f32, cpu);
  if (to.device() == meta_device) return;
  float* values = some.data<float>();
  for (int64_t first = 0; first < flat.numel(); first += some.numel()) {
    int64_t n = std::min(some.numel(), flat.numel() - first);
    int64_t shares = threads_here();
    in_team(shares, [&](int64_t share) {
      for (int64_t i = n * share / shares; i < n * (share + 1) / shares; ++i) {
        int64_t at = first + i;
        int64_t in_full = before + at / run * whole * inner + shard.begin * inner + at % run;
        values[i] = float(init.mean + init.std * random::normal(key, uint64_t(in_full)));
      }
    });
    copy_(flat.narrow(0, first, n), some.narrow(0, 0, n));
  }
}

}  // namespace triax::nn
