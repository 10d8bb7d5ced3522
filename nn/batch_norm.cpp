#include "triax/nn/batch_norm.h"

#include "triax/core/check.h"

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
  check_input(
      !o.shard.is("tp", Along::parts), Exit::config,
      "batch norm: each tensor-parallel rank would normalise rows or channels of its own\n"
      "  Leave --sequence-parallel out, or shard it with tp.whole() outside of split stretches.");
  check(samples >= 1 && o.momentum >= 0 && o.momentum <= 1,
        "batch norm: statistics of {} samples, momentum {}; expected at least 1, and 0 to 1",
        samples, o.momentum);
}

BatchNormShape BatchNorm::shape(const Tensor& x, const Batch& batch) const {
  int64_t here = batch.input.size(0), replicas = batch.replicas ? batch.replicas->count() : 1;
  if (here > 0 && here % samples_ == 0) return {.eps = eps_, .groups = here / samples_};
  int64_t ranks = samples_ / std::max<int64_t>(1, here);
  check_input(here > 0 && samples_ % here == 0 && replicas % ranks == 0, Exit::config,
              "batch norm: statistics of {} samples, with micro-batches of {} on {} replica{} (x "
              "is {})\n  Valid: a micro-batch of a multiple of {}; or of a divisor m of it, with a "
              "multiple of {} / m replicas\n  (dp), whose statistics are summed; or another number "
              "of samples for the batch norms.",
              samples_, here, replicas, replicas == 1 ? "" : "s", x.shape(), samples_, samples_);
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
  int64_t rows = x.numel() / x.size(-1) / over.groups * over.ranks;
  check_input(rows > 1, Exit::config,
              "batch norm: x {} has one value of each channel in a group of {} samples, which is "
              "its own mean; expected several",
              x.shape(), samples_);
  auto [y, mean, variance] = batch_norm(x, gamma_, beta_, over);
  mean_.accumulate(triax::mean(mean, {0}));
  variance_.accumulate(triax::mean(variance, {0}) * (double(rows) / double(rows - 1)));
  return y;
}

}  // namespace triax::nn
