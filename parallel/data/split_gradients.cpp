#include "triax/parallel/data/split_gradients.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "triax/core/check.h"
#include "triax/parallel/data/gradient_norm.h"

namespace triax::parallel {
namespace {

bool in_parts(const nn::Parameter& p, const std::string& axis) {
  return p.shard.is(axis, nn::Along::parts);
}

/// Returns the ranks along an axis, in a message.
std::string ranks_of(const std::string& axis) {
  return axis == "tp" ? "tensor-parallel ranks" : "ranks of " + axis;
}

/// Returns {largest, smallest} over the ranks, element by element.
std::array<std::vector<double>, 2> extremes(Communicator& tp, const Tensor& mine) {
  Tensor largest = clone(mine), smallest = clone(mine);
  tp.all_reduce(largest, ReduceOp::max).wait();
  tp.all_reduce(smallest, ReduceOp::min).wait();
  return {largest.to_host<double>(), smallest.to_host<double>()};
}

/// Returns {sum of squares, 1 if elements differ, else 0}. Those of a bias under a linear loss,
/// say, do not: its gradient is the number of rows.
std::array<double, 2> described(const Tensor& gradient) {
  if (gradient.device() == meta_device) return {};  // its zeros would be made for nothing
  auto v = gradient.to(cpu).to(f64).to_host<double>();
  double squares = std::inner_product(v.begin(), v.end(), v.begin(), 0.);
  return {squares, double(std::ranges::adjacent_find(v, std::not_equal_to()) != v.end())};
}

}  // namespace

void SplitGradients::sum_parts() {
  for (auto& axis : m_.features)
    if (axis.ranks->size() > 1) sum_parts(axis);
}

void SplitGradients::check_replicas(double loss) const {
  for (auto& axis : m_.features)
    if (axis.ranks->size() > 1) check_replicas(axis, loss);
}

void SplitGradients::sum_parts(const HeldModel::AxisRanks& axis) {
  Tensors parts;
  int64_t total = 0;
  for (auto& b : m_.trained())
    for (auto& piece : b->layout.pieces) {
      Range r = b->mine(piece);
      if (!in_parts(*piece.parameter, axis.name) || r.begin == r.end) continue;
      parts.push_back(b->my_sums.narrow(0, r.begin, r.end - r.begin));
      total += r.end - r.begin;
    }
  auto to_sum = [&](auto* p) { return in_parts(*p, axis.name) && !p->frozen; };
  if (!looked_at_.contains(axis.name) && std::ranges::any_of(m_.declared, to_sum))
    look_at_parts(axis);
  if (parts.empty()) return;
  Tensor flat = axis.ranks->empty({total}, parts[0].dtype());
  auto each = [&](auto f) {
    int64_t at = 0;
    for (auto& part : parts) {
      auto held = part.storage()->hold(Access::write);
      f(part, flat.narrow(0, at, part.numel()));
      at += part.numel();
    }
  };
  each([](const Tensor& part, const Tensor& in_flat) { copy_(in_flat, part); });
  axis.ranks->all_reduce(flat).wait();
  each([](const Tensor& part, const Tensor& in_flat) { copy_(part, in_flat); });
}

void SplitGradients::check_replicas(const HeldModel::AxisRanks& axis, double loss) const {
  int64_t count = std::ssize(m_.declared);
  Tensor sums = zeros({count + 1, 2}, f64, axis.ranks->device());  // the last row: the loss
  fill_(sums.narrow(0, count, 1), loss);                           // both columns
  m_.each_gradient(&Bucket::my_grad, [&](size_t i, const Tensor& gradient) {
    auto& shard = m_.declared[i]->shard;
    if (!shard.is(axis.name, nn::Along::slice) && !shard.is(axis.name, nn::Along::parts))
      squares(gradient, sums.narrow(0, int64_t(i), 1).view({2}));
  });
  auto [high, low] = extremes(*axis.ranks, sums);
  constexpr double rounding = 1e-6, rounding_of_loss = 1e-4;
  for (size_t i = 0; i < m_.declared.size(); ++i)
    check_input(
        !(high[2 * i] - low[2 * i] > rounding * high[2 * i]), Exit::config,
        "train: the gradient of {} differs between {}: its norm is {} to "
        "{}; expected that all compute it alike\n  Its layer or one behind it lacks enter, "
        "through or leave (parallel/tensor), or {} is used between them, where a rank sees "
        "only a part: then its .shard is tp.whole_always_summed(). With --sequence-parallel a rank "
        "has rows of its own outside of them: there it is tp.whole().",
        m_.declared[i]->name, ranks_of(axis.name), std::sqrt(low[2 * i]), std::sqrt(high[2 * i]),
        m_.declared[i]->name);
  double larger = std::max(std::abs(high.back()), std::abs(low.back()));
  check_input(!(high.back() - low.back() > rounding_of_loss * larger), Exit::config,
              "train: {} have sums of the loss from {} to {}; expected that all compute "
              "it alike\n  The last layer sees this rank's features or rows alone: it lacks leave, "
              "leave_product (as in RowLinear) or gather_rows (parallel/tensor).",
              ranks_of(axis.name), low.back(), high.back());
}

void SplitGradients::look_at_parts(const HeldModel::AxisRanks& axis) {
  std::vector<double> mine;
  std::vector<const nn::Parameter*> parts;
  m_.each_gradient(&Bucket::my_sums, [&](size_t i, const Tensor& gradient) {
    if (!in_parts(*m_.declared[i], axis.name) || gradient.numel() == 0) return;
    for (double x : described(gradient)) mine.push_back(x);
    parts.push_back(m_.declared[i]);
  });
  std::vector<double> high, low;
  if (!parts.empty()) {
    Tensor all = from_host(mine, {std::ssize(mine)}, cpu).to(axis.ranks->device());
    auto both = extremes(*axis.ranks, all);
    high = both[0], low = both[1];
  }
  const nn::Parameter* same = nullptr;
  double non_finite = 0, others = 0;  // 1 if there is any in the whole model
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!std::isfinite(high[2 * i])) non_finite = 1;
    if (high[2 * i] == 0) continue;
    if (high[2 * i] != low[2 * i]) others = 1;
    else if (low[2 * i + 1] > 0 && !same) same = parts[i];
  }
  Tensor any = from_host(std::vector{non_finite, others}, {2}, m_.all->device());
  m_.all->all_reduce(any, ReduceOp::max).wait();
  auto found = any.to_host<double>();
  if (found[0] > 0) return;
  looked_at_.insert(axis.name);
  check_input(!same || found[1] == 0, Exit::config,
              "train: all {} {} have the same gradient of {} and would add it "
              "up; expected parts that differ\n  Its .shard says that each rank sees rows or "
              "features of its own, as tp.whole_always_summed() does, and tp.whole() with "
              "--sequence-parallel. Outside of split regions it is tp.whole(); where all ranks "
              "have all rows, behind gather_rows or before scatter_rows, tp.whole_never_summed().",
              axis.ranks->size(), ranks_of(axis.name), same ? same->name : "");
}

}  // namespace triax::parallel
