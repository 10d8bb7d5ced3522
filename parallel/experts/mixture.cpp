#include "triax/parallel/experts/mixture.h"

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Returns `shard` of each of this rank's experts.
nn::Shard of_experts(int64_t experts, nn::Shard shard, Communicator* ranks) {
  shard.chains = 0;
  if (!ranks) return shard;
  if (experts % ranks->size() != 0) {
    std::vector<int64_t> valid;
    for (int64_t n = 1; n <= experts; ++n)
      if (experts % n == 0) valid.push_back(n);
    fail(Exit::config,
         "expert parallel: ep={} does not divide {} experts\n  Valid ep for them: {}.",
         ranks->size(), experts, join(valid, ", "));
  }
  shard.count = experts / ranks->size(), shard.first = ranks->rank() * shard.count;
  shard.along["ep"] = nn::Along::slice;
  return shard;
}

}  // namespace

Tensor gated(const Tensor& h, Saves saves, const TensorParallel::Product& product) {
  auto of = [rows = h.size(0), features = h.size(1) / 2](const Tensor& t) {
    auto halves = split(view(t, {rows, features, 2}), 2, {1, 1});
    return view(swiglu(halves[0], halves[1]), {rows, features});
  };
  Tensor g = of(h);
  return remade(saves, product(g), g, [of, h = h.detach()] { return of(h); });
}

Mixture::Mixture(int64_t width, const MixtureOptions& o, const TensorParallel& tp)
    : o_(o),
      tp_(tp),
      ranks_(tp.other("ep")),
      router_(child<Router>("router", width, o.router, tp)),
      gate_up_(
          parameter({.name = "gate_up",
                     .full = {o.router.experts, 2 * o.hidden, width},
                     .init = {.std = o.std},
                     .shard = of_experts(o.router.experts, tp.shard(1, 2 * o.hidden, 2), ranks_),
                     .decay = true,
                     .stacked = true})),
      down_(parameter({.name = "down",
                       .full = {o.router.experts, width, o.hidden},
                       .init = {.std = o.out_std},
                       .shard = of_experts(o.router.experts, tp.shard(2, o.hidden), ranks_),
                       .decay = true,
                       .stacked = true})),
      shared_in_(o.shared == 0
                     ? nullptr
                     : &child<ColumnLinear>("shared_gate_up", width, 2 * o.shared * o.hidden, tp,
                                            SplitLinearOptions{o.std, false, 2})),
      shared_out_(o.shared == 0 ? nullptr
                                : &child<RowLinear>("shared_down", o.shared * o.hidden, width, tp,
                                                    SplitLinearOptions{o.out_std, false})),
      shared_gate_(o.shared_gate ? &child<nn::Linear>("shared_gate", width, 1,
                                                      nn::LinearOptions{o.std, false, tp.whole()})
                                 : nullptr) {
  check_input(!o.shared_gate || o.shared > 0, Exit::config,
              "shared-gate of shared-experts={}; expected 1 or more shared experts", o.shared);
  check_input(!tp.sliced(), Exit::config,
              "bitwise with tp-slices and a mixture of experts, whose rows are sent before they "
              "are summed\n  Take --tp 1 without --tp-slices.");
}

Tensor Mixture::operator()(const Tensor& x, const nn::Batch& batch, Saves saves) const {
  Router::Scored scored = router_.score(x);
  // From here each rank of tp has all rows, and a part of each expert's features. The losses see
  // the scores before: entered, they would count once for each rank.
  Router::Chosen chosen = router_.choose(tp_.enter(scored.scores), batch);
  Tensor y = tp_.leave(routed(tp_.enter(x), chosen, batch, saves));
  auto shared = [&](auto product) { return gated((*shared_in_)(x), saves, product); };
  if (shared_gate_) y = y + shared(std::ref(*shared_out_)) * sigmoid((*shared_gate_)(x));
  else if (shared_in_) y = shared([&](auto& g) { return shared_out_->onto(y, g); });
  return router_.with_losses(y, scored, chosen.experts, batch);
}

Tensor Mixture::routed(const Tensor& all, const Router::Chosen& chosen, const nn::Batch& batch,
                       Saves saves) const {
  int64_t rows = all.size(0), k = o_.router.top_k, n = o_.router.experts;
  int64_t ranks = ranks_ ? ranks_->size() : 1, each = n / ranks, parts = batch.row_parts;
  // Groups [rank][part][expert of that rank], the dropped ones last.
  Tensor group = chosen.taken;
  if (parts > 1 && group.device() != meta_device) {
    auto v = group.to_host<int32_t>();
    int64_t a_part = rows * k / batch.input.size(0) / parts;
    for (size_t i = 0; i < v.size(); ++i)
      v[i] =
          v[i] == n
              ? int32_t(n * parts)
              : int32_t((v[i] / each * parts + int64_t(i) / a_part % parts) * each + v[i] % each);
    group = from_host(v, group.shape(), group.device());
  }
  bool drops = o_.router.capacity > 0 && batch.first != nn::evaluation;
  triax::Grouping g = grouped(group, n * parts + drops);
  std::vector<int64_t> counts(g.counts.begin(), g.counts.begin() + n * parts);
  int64_t sent = rows * k - (drops ? g.counts.back() : 0);
  Exchange exchange(ranks_, counts, parts);

  std::vector<int32_t> from(static_cast<size_t>(sent));
  if (all.device() != meta_device) {
    auto order = g.order.to_host<int32_t>();
    for (size_t i = 0; i < from.size(); ++i) from[i] = order[i] / int32_t(k);  // its row
  }
  Tensor out = index_select(all, 0, from_host(from, {sent}, group.device()));
  Tensor h = grouped_linear(exchange.there(out), gate_up_, exchange.stretches());
  auto down = [&](const Tensor& a) { return grouped_linear(a, down_, exchange.stretches()); };
  Tensor y = exchange.back(gated(h, saves, down));
  if (sent < rows * k) y = pad(y, {{.dim = 0, .after = rows * k - sent}});
  y = view(index_select(y, 0, g.place), {rows, k, all.size(1)});
  return sum(y * view(cast(chosen.weights, y.dtype()), {rows, k, 1}), {1});
}

}  // namespace triax::parallel
