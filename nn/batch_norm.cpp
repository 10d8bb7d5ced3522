#include "nn/batch_norm.h"

#include "core/check.h"

namespace triax::nn {

BatchNorm::BatchNorm(int64_t channels, int64_t samples, const BatchNormOptions& o)
    : samples_(samples),
      eps_(o.eps),
      gamma_(parameter(
          {.name = "gamma", .full = {channels}, .init = {.mean = o.gamma}, .shard = o.shard})),
      beta_(parameter({.name = "beta", .full = {channels}, .shard = o.shard})),
      mean_(buffer({.name = "mean", .shape = {channels}, .momentum = o.momentum})),
      variance_(
          buffer({.name = "variance", .shape = {channels}, .init = 1, .momentum = o.momentum})) {
  check(samples >= 1 && o.momentum >= 0 && o.momentum <= 1,
        "batch norm: statistics of {} samples, momentum {}; expected at least 1, and 0 to 1",
        samples, o.momentum);
}

BatchNormShape BatchNorm::shape(const Tensor& x, const Batch& batch) const {
  int64_t here = batch.input.size(0), replicas = batch.replicas ? batch.replicas->count() : 1;
  if (here % samples_ == 0) return {.eps = eps_, .groups = here / samples_};
  int64_t ranks = samples_ / std::max<int64_t>(1, here);
  check_input(here > 0 && samples_ % here == 0 && replicas % ranks == 0, Exit::config,
              "batch norm: statistics of {} samples, with micro-batches of {} on {} replica{} (x "
              "is {})\n  Micro-batches of a multiple of {} samples make them, or as many of them "
              "side by side as divide the replicas.",
              samples_, here, replicas, replicas == 1 ? "" : "s", x.shape(), samples_);
  return {.eps = eps_,
          .ranks = ranks,
          .sum_over_ranks = [all = batch.replicas, ranks](const Tensor& sums) {
            all->sum(sums, ranks);
          }};
}

Tensor BatchNorm::operator()(const Tensor& x, const Batch& batch) const {
  if (batch.first == evaluation || !batch.target.defined())
    return batch_norm_with(x, gamma_, beta_, {mean_.value, variance_.value, eps_});
  BatchNormShape over = shape(x, batch);
  auto [y, mean, variance] = batch_norm(x, gamma_, beta_, over);
  NoGrad guard;
  int64_t rows = x.numel() / x.size(-1) / over.groups * over.ranks;
  double unbiased = rows > 1 ? double(rows) / double(rows - 1) : 1;
  mean_.note(triax::mean(mean, {0}));
  variance_.note(triax::mean(variance, {0}) * unbiased);
  return y;
}

}  // namespace triax::nn
