#include "triax/parallel/experts/router.h"

#include <cmath>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Returns the places of this rank's rows among those of the whole samples, sample by sample.
std::vector<int64_t> places(const nn::Batch& batch, int64_t rows) {
  int64_t samples = batch.input.size(0), time = rows / samples, whole = nn::whole_rows(batch, time);
  std::vector<int64_t> all;
  for (int64_t s = 0; s < samples; ++s)
    for (auto& span : nn::spans(batch, time))
      for (int64_t i = 0; i < span.count; ++i) all.push_back(s * whole + span.first + i);
  return all;
}

/// Replaces values by their sums over the ranks that have other rows of the same samples.
void sum_over_rows(std::vector<double>& values, const nn::Batch& batch) {
  if (!batch.rows) return;
  Tensor all = from_host(values, {std::ssize(values)}, cpu);
  batch.rows->sum(all);
  values = all.to_host<double>();
}

/// Returns the number of targets that count in each sample: of classes, those not ignored.
std::vector<double> targets(const nn::Batch& batch) {
  auto samples = size_t(batch.input.size(0));
  std::vector<double> counting(samples);
  std::vector<int64_t> t(size_t(batch.target.numel()), batch.loss.ignore + 1);
  if (is_index(batch.target.dtype())) t = batch.target.to(cpu).to(i64).to_host<int64_t>();
  for (size_t i = 0; i < t.size(); ++i)
    counting[i / (t.size() / samples)] += t[i] != batch.loss.ignore;
  sum_over_rows(counting, batch);
  return counting;
}

}  // namespace

Router::Router(int64_t width, const RouterOptions& o, const TensorParallel& tp)
    : o_(o),
      tp_(tp),
      weight_(parameter({.name = "weight",
                         .full = {o.experts, width},
                         .init = {.std = o.std},
                         .shard = tp.whole(),
                         .decay = true})),
      load_(buffer({.name = "load", .shape = {o.experts}, .rule = nn::Buffer::Rule::share})),
      bias_(o.bias_rate == 0 ? nullptr
                             : &buffer({.name = "bias",
                                        .shape = {o.experts},
                                        .momentum = o.bias_rate,
                                        .rule = nn::Buffer::Rule::balance})) {
  check_input(o.top_k >= 1 && o.top_k <= o.experts, Exit::config,
              "top-k={} of {} experts; expected 1 to {}", o.top_k, o.experts, o.experts);
}

Router::Scored Router::score(const Tensor& x) const {
  Tensor logits = cast(linear(x, weight_), f32);
  return {logits, o_.score == RouterOptions::Score::softmax ? softmax(logits) : sigmoid(logits)};
}

Router::Chosen Router::choose(const Tensor& scores, const nn::Batch& batch) const {
  bool trains = batch.first != nn::evaluation;
  Tensor by = bias_ ? scores.detach() + bias_->value : scores.detach();
  if (by.device() != meta_device) by = by.to(cpu);
  Tensor chosen = top_k(by, o_.top_k);
  if (trains && batch.choices && chosen.device() != meta_device) {
    auto serial = places(batch, chosen.size(0));
    int64_t whole = nn::whole_rows(batch, chosen.size(0) / batch.input.size(0));
    for (int64_t& row : serial) row += nn::serial_of_row(batch, whole);
    chosen = batch.choices->settled(weight_.name, serial, chosen, by);
  }
  Tensor weights = gather(scores, chosen);
  if (o_.weights == RouterOptions::Weights::normalized)
    weights = weights / sum(weights, {1}, Keep::yes);
  if (o_.weight_scale != 1) weights = weights * o_.weight_scale;
  if (!trains) return {chosen, weights, chosen};
  auto counts = grouped(chosen, o_.experts).counts;
  std::vector<float> load(counts.begin(), counts.end());
  for (nn::Buffer* b : {&load_, bias_})
    if (b) b->accumulate(from_host(load, {o_.experts}, scores.device()));
  return {chosen, weights, within_capacity(chosen, batch)};
}

/// Drops what exceeds an expert's share of a sequence: first all first choices take their places,
/// row by row, then the second ones (Lepikhin et al., "GShard", 2020, algorithm 1).
Tensor Router::within_capacity(const Tensor& chosen, const nn::Batch& batch) const {
  if (o_.capacity == 0 || chosen.device() == meta_device) return chosen;
  auto mine = places(batch, chosen.size(0));
  auto experts = chosen.to_host<int32_t>();
  auto k = size_t(o_.top_k), samples = size_t(batch.input.size(0));
  auto time = size_t(nn::whole_rows(batch, chosen.size(0) / int64_t(samples)));
  std::vector<double> all(samples * time * k);
  for (size_t i = 0; i < experts.size(); ++i) all[size_t(mine[i / k]) * k + i % k] = experts[i];
  sum_over_rows(all, batch);
  auto most = int64_t(std::ceil(o_.capacity * double(time * k) / double(o_.experts)));
  for (size_t s = 0; s < samples; ++s) {
    std::vector<int64_t> has(size_t(o_.experts), 0);
    for (size_t j = 0; j < k; ++j)
      for (size_t t = 0; t < time; ++t) {
        double& e = all[(s * time + t) * k + j];
        if (++has[size_t(e)] > most) e = double(o_.experts);
      }
  }
  for (size_t i = 0; i < experts.size(); ++i)
    experts[i] = int32_t(all[size_t(mine[i / k]) * k + i % k]);
  return from_host(experts, chosen.shape(), chosen.device());
}

/// Returns the share of choices that each expert got in each sample, [samples, experts].
std::vector<double> Router::shares(const Tensor& experts, const nn::Batch& batch) const {
  auto samples = size_t(batch.input.size(0)), n = size_t(o_.experts);
  std::vector<double> f(samples * n);
  if (o_.over == RouterOptions::Over::step) {
    auto before = load_.value.to_host<float>();  // of the step before; none before the first
    for (size_t i = 0; i < f.size(); ++i) f[i] = double(before[i % n]);
    return f;
  }
  auto v = experts.to_host<int32_t>();
  int64_t time = nn::whole_rows(batch, experts.size(0) / int64_t(samples));
  double each = 1 / double(time * o_.top_k);
  for (size_t i = 0; i < v.size(); ++i) ++f[i / (v.size() / samples) * n + size_t(v[i])];
  sum_over_rows(f, batch);
  for (double& share : f) share *= each;  // of whole counts, whose sums have the same bits anywhere
  if (o_.over == RouterOptions::Over::sequence) return f;
  for (size_t e = 0; e < n; ++e) {
    double mean = 0;
    for (size_t s = 0; s < samples; ++s) mean += f[s * n + e] / double(samples);
    for (size_t s = 0; s < samples; ++s) f[s * n + e] = mean;
  }
  return f;
}

// Both losses are sums over rows, of which each rank of tp and cp adds its own. A sequence counts
// as often as it has targets:
// - balance * experts * sum of f_e P_e, f_e the share of choices that expert e got (they add up to
//   1), P_e its mean score, of those that add up to 1 (Fedus et al., "Switch Transformers", 2021,
//   equation 4; of each sequence by itself as in DeepSeek-V2, 2024, equation 12);
// - z_loss * (log of the sum of the exponentials of the logits)^2 (Zoph et al., "ST-MoE", 2022,
//   equation 5).
Tensor Router::with_losses(const Tensor& y, const Scored& scored, const Tensor& experts,
                           const nn::Batch& batch) const {
  if (batch.loss_seed == 0 || (o_.balance == 0 && o_.z_loss == 0)) return y;
  int64_t samples = batch.input.size(0), n = o_.experts, mine = scored.scores.size(0);
  int64_t time = experts.size(0) / samples, first = tp_.first_row(mine);
  Device on = y.device();
  std::vector<float> shares_of(size_t(samples * n)), weights(static_cast<size_t>(samples));
  if (on != meta_device) {
    auto f = shares(experts, batch), counting = targets(batch);
    for (size_t s = 0; s < counting.size(); ++s) {
      double each = counting[s] / double(nn::whole_rows(batch, time));  // targets for each row
      weights[s] = float(o_.z_loss * each);
      for (size_t e = 0; e < size_t(n); ++e)
        shares_of[s * size_t(n) + e] = float(o_.balance * each * double(n) * f[s * size_t(n) + e]);
    }
  }
  std::vector<int32_t> sample(static_cast<size_t>(mine));
  for (size_t r = 0; r < sample.size(); ++r) sample[r] = int32_t((first + int64_t(r)) / time);
  Tensor of = from_host(sample, {mine}, experts.device()), p = scored.scores;
  if (o_.score == RouterOptions::Score::sigmoid) p = p / sum(p, {1}, Keep::yes);
  Tensor loss = sum(p * index_select(from_host(shares_of, {samples, n}, on), 0, of));
  if (o_.z_loss > 0) {
    Tensor log_sum = narrow(scored.logits, 1, 0, 1) - narrow(log_softmax(scored.logits), 1, 0, 1);
    loss =
        loss + sum(log_sum * log_sum * index_select(from_host(weights, {samples, 1}, on), 0, of));
  }
  return attach_loss(y, loss, batch.loss_seed);
}

}  // namespace triax::parallel
