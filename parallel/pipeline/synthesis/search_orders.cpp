// The second part of a search: the order of forwards and backwards itself is annealed. The list
// scheduler says where weights go, and whether memory suffices.
#include <algorithm>

#include "triax/parallel/pipeline/synthesis/search.h"

namespace triax::parallel::synthesis {
namespace {

/// True if two neighbours of a list may change places. Passes of one kind through one chunk stay in
/// the order of micro-batches, as links need it, and a backward behind its forward.
bool can_swap(const Action& a, const Action& b) {
  auto sort = [](const Action& x) {
    return x.kind == Action::backward_input ? Action::backward : x.kind;
  };
  return a.chunk != b.chunk || (sort(a) != sort(b) && a.micro != b.micro);
}

/// Moves the action at `from` by up to `far` places up (step 1) or down (-1), as far as it can.
/// Returns its new place.
int shift(Actions& list, int from, int step, int far) {
  int at = from;
  for (; far > 0 && at + step >= 0 && at + step < std::ssize(list); --far, at += step) {
    Action &a = list[size_t(at)], &b = list[size_t(at + step)];
    if (!can_swap(a, b)) break;
    std::swap(a, b);
  }
  return at;
}

}  // namespace

void Search::move_one(Actions& order) {
  int from = draw_.below(int(order.size())), step = draw_.one_in(2) ? 1 : -1;
  shift(order, from, step, 1 + draw_.below(draw_.one_in(2) ? 3 : 2 * p_.shape.stages));
}

/// Moves the same passes of neighbouring micro-batches on neighbouring stages together, which
/// single moves would have to do one by one, each for the worse.
void Search::move_many(std::vector<Actions>& orders, std::pair<int, int> stretch) {
  constexpr Action::Kind kinds[] = {Action::forward, Action::backward_input,
                                    Action::backward_weight};
  auto kind = kinds[draw_.below(3)];
  int chunk = draw_.below(p_.shape.chunks), first = draw_.below(p_.shape.micros);
  int last = first + draw_.below(draw_.one_in(2) ? 4 : p_.shape.micros);
  int step = draw_.one_in(2) ? 1 : -1, far = 1 + draw_.below(3);
  auto moves = [&](const Action& a) {
    return a.kind == kind && a.chunk == chunk && a.micro >= first && a.micro <= last;
  };
  for (int s = stretch.first; s <= stretch.second; ++s) {
    Actions& list = orders[size_t(s)];
    int size = int(list.size());
    // From the end towards which they move, so that none meets another of them.
    for (int n = 0; n < size; ++n) {
      int at = step > 0 ? size - 1 - n : n;
      if (moves(list[size_t(at)])) shift(list, at, step, far);
    }
  }
}

Policy Search::try_weights(std::vector<Actions>& order, double& value, double most) {
  for (Actions& list : order) {
    std::erase_if(list, [](auto& a) { return a.kind == Action::backward_weight; });
    for (Action& a : list)
      if (a.kind == Action::backward) a.kind = Action::backward_input;
  }
  Policy best(order.size());
  auto attempt = [&](const StagePolicy& rules) {
    if (over(most)) return;
    Policy policy(order.size(), rules);
    for (size_t s = 0; s < policy.size() && p_.growth > 0; ++s) policy[s].room = policy_[s].room;
    Score score = consider(policy, value, &order);
    if (score.soft < value) value = score.soft, best = policy;
  };
  for (double waits : {.5, 0., .2, .35, .7, .9, 1.1}) attempt({.weight_waits = waits});
  for (double waits : {0., .5})
    for (double share : {0., .6, .7, .8, .85, .9, .95, .975, .99})
      attempt({.weight_waits = waits, .idle = idle(share)});
  return best;
}

void Search::anneal_orders(Weights weights, double share) {
  std::vector<Actions> now = best_;
  double value = infinity;
  Policy policy(now.size());
  if (weights == Weights::free) policy = try_weights(now, value, share);
  else if (!over(share)) value = consider(policy, value, &now).soft;
  while (!over(share)) {
    Policy other = policy;
    auto [from, to] = draw_stretch();
    int way = draw_.below(4);
    if (way < 2 && draw_.one_in(3)) from = 0, to = p_.shape.stages - 1;
    if (way >= 2) to = from;
    std::vector<Actions> before(now.begin() + from, now.begin() + to + 1);
    if (way == 0) {
      bool waits = !draw_.one_in(4);
      double x = draw_.up_to(1.2);
      for (int s = from; s <= to; ++s)
        (waits ? other[size_t(s)].weight_waits : other[size_t(s)].idle) = waits ? x : idle(x);
    } else if (way == 1) {
      move_many(now, {from, to});
    } else {
      move_one(now[size_t(from)]);
    }
    double most = limit(value, .05 * unit_ * left() * left());
    Score score = consider(other, most, &now);
    if (score.soft < infinity && score.soft <= most) value = score.soft, policy = other;
    else std::ranges::copy(before, now.begin() + from);
  }
}

}  // namespace triax::parallel::synthesis
