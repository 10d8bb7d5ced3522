#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "core/check.h"
#include "parallel/data/data_parallel.h"

namespace triax::parallel {

namespace {

/// Adds {sum of squares, non-finite elements} of x, wherever it is, to `sums`.
void squares(const Tensor& x, const Tensor& sums) {
  Tensor here = x.to(sums.device());
  backend(here).squares(here, sums);
}

double non_finite(const Tensor& x, Device device) {
  Tensor sums = zeros({2}, f64, device);
  squares(x, sums);
  return sums.to(cpu).to_host<double>()[1];
}

/// {largest, smallest} over the ranks, element by element.
std::array<std::vector<double>, 2> extremes(Communicator& tp, const Tensor& mine) {
  Tensor largest = clone(mine), smallest = clone(mine);
  tp.all_reduce(largest, ReduceOp::max).wait();
  tp.all_reduce(smallest, ReduceOp::min).wait();
  return {largest.to_host<double>(), smallest.to_host<double>()};
}

/// {sum of squares, are there different elements}: not of a bias under a linear loss, say, whose
/// gradient is the number of rows.
std::array<double, 2> described(const Tensor& gradient) {
  auto v = gradient.to(cpu).to(f64).to_host<double>();
  double squares = std::inner_product(v.begin(), v.end(), v.begin(), 0.);
  return {squares, double(std::ranges::adjacent_find(v, std::not_equal_to()) != v.end())};
}

double smallest(Communicator& all, double mine) {
  Tensor x = from_host(std::vector<double>{mine}, {1}, cpu);
  all.all_reduce(x, ReduceOp::min).wait();
  return x.item();
}

}  // namespace

int64_t DataParallel::parameter_count(Count which) const {
  return std::accumulate(declared_.begin(), declared_.end(), int64_t{0}, [&](int64_t n, auto* p) {
    return which == Count::trained && p->frozen ? n : n + p->full.numel();
  });
}

/// Of tensor-parallel replicas, of tied copies and, where dp does not slice it, of dp replicas one.
bool DataParallel::owns(const nn::Parameter& p) const {
  bool copy = p.tied && groups_.ends && groups_.ends->rank() > 0;
  return !copy && p.shard.first_replica && (cuts(p.frozen) || dp_.rank() == 0);
}

// One sum: squares of the elements that count here, and non-finite ones anywhere. The norm alone
// would be no vote: an inf in a tied copy or a replica is not in it.
void DataParallel::add_squares(const Tensor& sums) const {
  auto add = [&](const Tensor& x, const Tensor& to) {
    if (options_.bitwise) backend(x).squares_fixed(x, to);
    else squares(x, to);
  };
  int64_t last = sums.numel() - 1;
  Tensor rest = zeros(sums.shape(), f64, sums.device());
  for (auto& b : trained()) {
    auto held = b->my_grad.storage()->hold(Access::read);
    for (bool owned : {true, false})
      for (const Range& r : b->mine([&](auto& p) { return owns(p) == owned; }))
        add(b->my_grad.narrow(0, r.begin, r.end - r.begin), owned ? sums : rest);
  }
  backend(sums).accumulate(rest.narrow(0, last, 1), sums.narrow(0, last, 1));
}

/// With ZeRO-2 and 3 buckets are reduced as passes complete them. A rank whose pass leaves one out
/// would add up another bucket than the others do.
void DataParallel::check_passes() const {
  check(due_ > 0, "data parallel: finish without begin");
  for (auto& b : trained())
    for (size_t i = 0; i < b->fired.size(); ++i) {
      const std::string& name = b->layout.pieces[i].parameter->name;
      check_input(!releases_gradients() || dp_.size() == 1 || b->fired[i] == b->due, Exit::config,
                  "train: {} of the {} backward passes of this rank reach {}; expected all with "
                  "ZeRO stage {}{}",
                  b->fired[i], b->due, name, int(options_.zero), if_modules_are_left_out);
      if (fixed_) fixed_->check_uses(*b->layout.pieces[i].parameter, due_);
    }
}

/// Calls `see` with the number of each parameter, in order of declaration, and what this rank has
/// of its gradient, which may be nothing.
template <class See> void DataParallel::each_gradient(Tensor Bucket::*of, See&& see) const {
  for (size_t i = 0; i < declared_.size(); ++i) {
    Bucket* b = holder(declared_[i]);
    if (!b || declared_[i]->frozen) continue;
    for (auto& piece : b->layout.pieces) {
      if (piece.parameter != declared_[i]) continue;
      Range r = b->mine(piece);
      auto held = (b->*of).storage()->hold(Access::read);
      see(i, (b->*of).narrow(0, r.begin, r.end - r.begin));
    }
  }
}

void DataParallel::check_replicas(double loss) const {
  if (!groups_.tp || groups_.tp->size() == 1) return;
  int64_t count = std::ssize(declared_);
  Tensor sums = zeros({count + 1, 2}, f64, groups_.tp->device());  // the last row: the loss
  fill_(sums.narrow(0, count, 1), loss);                           // both columns
  each_gradient(&Bucket::my_grad, [&](size_t i, const Tensor& gradient) {
    auto& shard = declared_[i]->shard;
    if (shard.replicated && !shard.partial)
      squares(gradient, sums.narrow(0, int64_t(i), 1).view({2}));
  });
  auto [high, low] = extremes(*groups_.tp, sums);
  constexpr double rounding = 1e-6, rounding_of_loss = 1e-4;
  for (size_t i = 0; i < declared_.size(); ++i)
    check_input(
        !(high[2 * i] - low[2 * i] > rounding * high[2 * i]), Exit::config,
        "train: the gradient of {} differs between tensor-parallel ranks: its norm is {} to "
        "{}; expected that all compute it alike\n  Its layer or one behind it lacks enter, "
        "through or leave (parallel/tensor), or {} is used between them, where a rank sees "
        "only a part: then its .shard is tp.whole_inside(). With --sequence-parallel a rank "
        "has rows of its own outside of them: there it is tp.whole().",
        declared_[i]->name, std::sqrt(low[2 * i]), std::sqrt(high[2 * i]), declared_[i]->name);
  double larger = std::max(std::abs(high.back()), std::abs(low.back()));
  check_input(
      !(high.back() - low.back() > rounding_of_loss * larger), Exit::config,
      "train: tensor-parallel ranks have sums of the loss from {} to {}; expected that all compute "
      "it alike\n  The last layer sees this rank's features or rows alone: it lacks leave, "
      "leave_product (as in RowLinear) or gather_rows (parallel/tensor).",
      low.back(), high.back());
}

/// Before they are summed, in the first step with finite gradients: ranks that see rows or features
/// of their own do not compute the same to the last bit. Where all parts are alike, the rows
/// themselves may be: nothing is said.
void DataParallel::look_at_parts() {
  std::vector<double> mine;
  std::vector<const nn::Parameter*> parts;
  each_gradient(&Bucket::my_sums, [&](size_t i, const Tensor& gradient) {
    if (!declared_[i]->shard.partial || gradient.numel() == 0) return;
    for (double x : described(gradient)) mine.push_back(x);
    parts.push_back(declared_[i]);
  });
  std::vector<double> high, low;
  if (!parts.empty()) {
    Tensor all = from_host(mine, {std::ssize(mine)}, cpu).to(groups_.tp->device());
    auto both = extremes(*groups_.tp, all);
    high = both[0], low = both[1];
  }
  const nn::Parameter* same = nullptr;
  double non_finite = 0, others = 0;  // is there any in the whole model?
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!std::isfinite(high[2 * i])) non_finite = 1;
    if (high[2 * i] == 0) continue;
    if (high[2 * i] != low[2 * i]) others = 1;
    else if (low[2 * i + 1] > 0 && !same) same = parts[i];
  }
  Tensor any = from_host(std::vector{non_finite, others}, {2}, groups_.all->device());
  groups_.all->all_reduce(any, ReduceOp::max).wait();
  auto found = any.to_host<double>();
  if (found[0] > 0) return;
  looked_at_parts_ = true;
  check_input(!same || found[1] == 0, Exit::config,
              "train: all {} tensor-parallel ranks have the same gradient of {} and would add it "
              "up; expected parts that differ\n  Its .shard says that each rank sees rows or "
              "features of its own, as tp.whole_inside() does, and tp.whole() with "
              "--sequence-parallel. Outside of split regions it is tp.whole(); where all ranks "
              "have all rows, behind gather_rows or before scatter_rows, tp.whole_alike().",
              groups_.tp->size(), same ? same->name : "");
}

DataParallel::Norm DataParallel::norm() {
  Tensor sums = zeros({options_.bitwise ? WideSum::words + 1 : 2}, f64, dp_.device());
  add_squares(sums);
  groups_.all->all_reduce(sums).wait();
  auto v = sums.to_host<double>();
  if (options_.bitwise) v = {WideSum::value(v.data()), v.back()};
  return norm_of(v);
}

DataParallel::Norm DataParallel::norm_of(std::span<const double> sums) {
  bool finite = sums[1] == 0;
  return {finite ? std::sqrt(sums[0]) : std::numeric_limits<double>::infinity(), sums[1]};
}

/// Before the bucket is reduced: what this pass and those before it have brought here.
void DataParallel::look_at(const Bucket& b, size_t piece) {
  auto& [p, begin, length, first] = b.layout.pieces[piece];
  if (non_finite(b.grad.narrow(0, begin, length), dp_.device()) == 0) return;
  auto at = std::find(declared_.begin(), declared_.end(), p) - declared_.begin();
  seen_ = {size_t(at), (b.fired[piece] - 1) / b.layout.passes};
}

DataParallel::NonFinite DataParallel::first_non_finite() {
  Communicator& all = *groups_.all;
  constexpr double none = std::numeric_limits<double>::infinity();
  // Micro-batches in order, stages from the last: there a backward begins.
  int64_t last_first = all.size() - 1 - all.rank();
  double order = smallest(all, seen_ ? double(seen_->micro * all.size() + last_first) : none);
  bool watched = order != none;
  std::vector<size_t> bad;
  if (watched && seen_ && double(seen_->micro * all.size() + last_first) == order)
    bad.push_back(seen_->parameter);
  if (!watched)
    each_gradient(&Bucket::my_grad, [&](size_t i, const Tensor& gradient) {
      if (non_finite(gradient, dp_.device()) > 0) bad.push_back(i);
    });
  double first = smallest(all, bad.empty() ? none : double(bad[0]));
  if (first == none) return {};
  double rank = smallest(all, !bad.empty() && double(bad[0]) == first ? all.rank() : none);
  return {declared_[size_t(first)]->name, int(rank),
          watched ? int64_t(order) / all.size() : int64_t{-1}};
}

}  // namespace triax::parallel
