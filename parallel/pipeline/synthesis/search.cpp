#include "triax/parallel/pipeline/synthesis/search.h"

#include <algorithm>

namespace triax::parallel::synthesis {
namespace {

constexpr int64_t default_actions = 40'000'000, least_tries = 100;

}  // namespace

Search::Search(const Problem& problem, uint64_t seed, SearchWatch watch)
    : p_(problem),
      scheduler_(problem),
      draw_(seed),
      watch_(std::move(watch)),
      bound_(lower_bound(problem)),
      unit_(total(p_.times[0])),
      work_(busiest(p_.shape, p_.times)),
      policy_(size_t(p_.shape.stages)) {}

void Search::offer(const std::vector<Actions>& lists, double cost) {
  if (cost < cost_ - p_.rounding) best_ = lists, cost_ = cost;
}

double Search::left() const {
  if (p_.budget.tries > 0) return 1 - double(tried_) / double(p_.budget.tries);
  // An action takes longer, the more stages there are.
  double slower = (8. + p_.shape.stages) / 16, least = double(least_tries * scheduler_.actions());
  double all = std::max(p_.budget.effort * default_actions, slower * least);
  return 1 - slower * double(scheduler_.actions_done()) / all;
}

Score Search::consider(const Policy& policy, double most, const std::vector<Actions>* order) {
  ++tried_;
  double limit = std::max(cost_, most - scheduler_.least_difference());
  Score score = scheduler_.run(policy, limit, order);
  offer(scheduler_.lists(), score.cost);
  if (!order && score.soft < policy_soft_) policy_ = policy, policy_soft_ = score.soft;
  if (watch_) watch_(std::min(1., 1 - left()), cost_, bound_);
  return score;
}

void Search::run() {
  try_grid();
  double value = infinity;
  for (auto& order : orders_) try_weights(order, value, .5);
  if (policy_soft_ < infinity) anneal_policies();
  if (!best_.empty()) anneal_orders(Weights::free, p_.shape.chunks > 1 ? .55 : .95);
  if (p_.shape.chunks == 2) try_blocks();
  if (!best_.empty()) anneal_orders(Weights::told, 1);
}

/// Tries policies with the same rules on all stages.
void Search::try_grid() {
  std::vector<double> rooms = {0};
  if (p_.shape.chunks > 1 || p_.growth > 0) rooms = {0, .1, .2, .3, .4, .5};
  for (double forward_waits : {.2, .6, 0.})
    for (double room : rooms)
      for (double weight_waits : {.5, .1, .3, 0., .7, .9})
        for (int early : {1, 4, 0}) {
          if (over(.2)) return;
          StagePolicy rules{
              .weight_waits = weight_waits, .forward_waits = forward_waits, .early = early};
          Policy policy(size_t(p_.shape.stages), rules);
          for (size_t s = 0; s < policy.size(); ++s) policy[s].room = room * p_.budget.cap[s];
          consider(policy, policy_soft_);
        }
}

std::pair<int, int> Search::draw_stretch() {
  int from = draw_.below(p_.shape.stages);
  if (draw_.one_in(2)) return {from, from};
  return {from, std::min(p_.shape.stages - 1, from + draw_.below(p_.shape.stages))};
}

/// Changes one rule of some stages.
void Search::change(Policy& policy) {
  auto [from, to] = draw_stretch();
  int which = draw_.below(12), few = draw_.below(3 * p_.shape.stages);
  double x = draw_.up_to(1.2);
  for (int s = from; s <= to; ++s) {
    StagePolicy& k = policy[size_t(s)];
    if (which < 4) k.weight_waits = x;
    else if (which < 6) k.forward_waits = x;
    else if (which < 7) k.early = few / 3;
    else if (which < 8) k.tail = few;
    else if (which < 9) k.warm = few;
    else if (which < 10) k.backward_waits = std::max(0., x - .4);
    else if (which < 11) k.turns = few % 2 == 1;
    else k.room = std::max(0., x - .6) * p_.budget.cap[size_t(s)];
  }
}

void Search::anneal_policies() {
  const double share = p_.shape.chunks > 1 ? .3 : .7;  // orders matter more for several chunks
  Policy now = policy_;
  double value = policy_soft_;
  while (!over(share)) {
    Policy other = now;
    change(other);
    double most = limit(value, .1 * unit_ * (share - 1 + left()));
    Score score = consider(other, most);
    if (score.soft <= most) now = std::move(other), value = score.soft;
  }
}

}  // namespace triax::parallel::synthesis
