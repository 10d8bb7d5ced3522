#include "parallel/pipeline/synthesis/search.h"

#include <algorithm>

namespace triax::parallel::synthesis {
namespace {

constexpr int64_t default_actions = 40'000'000;

int64_t tries_of(const Problem& p) {
  if (p.budget.tries > 0) return p.budget.tries;
  return default_actions / (int64_t{3} * p.virtual_stages() * p.shape.micros) + 100;
}

}  // namespace

Search::Search(const Problem& problem, uint64_t seed)
    : p_(problem),
      scheduler_(problem),
      draw_(seed),
      bound_(lower_bound(problem)),
      unit_(p_.times[0].forward + p_.times[0].backward_input + p_.times[0].backward_weight),
      tries_(tries_of(problem)) {}

void Search::offer(const std::vector<Actions>& lists, double cost) {
  if (cost < cost_ - p_.rounding) best_ = lists, cost_ = cost;
}

bool Search::over(double share) const {
  return meets(cost_, bound_) || double(tried_) >= share * double(tries_);
}

Score Search::consider(const Policy& policy, const std::vector<Actions>* order) {
  ++tried_;
  Score score = scheduler_.run(policy, order);
  offer(scheduler_.lists(), score.cost);
  if (!order && score.cost < policy_cost_)
    policy_ = policy, policy_cost_ = score.cost, policy_soft_ = score.soft;
  return score;
}

bool Search::accepts(const Score& now, double before, double heat) {
  if (now.soft == infinity) return false;
  return now.soft <= before || draw_.up_to(1) < std::exp((before - now.soft) / heat);
}

void Search::run() {
  try_grid();
  if (policy_cost_ < infinity) anneal_policies();
  if (!best_.empty()) anneal_orders();
}

/// The same rules on all stages.
void Search::try_grid() {
  std::vector<double> rooms = {0};
  if (p_.shape.chunks > 1) rooms = {0, .1, .2, .3, .4, .5};
  for (double forward_waits : {.2, .6, 0.})
    for (double room : rooms)
      for (double weight_waits : {.5, .1, .3, 0., .7, .9})
        for (int early : {1, 4, 0}) {
          if (over(.25)) return;
          StagePolicy rules{
              .weight_waits = weight_waits, .forward_waits = forward_waits, .early = early};
          Policy policy(size_t(p_.shape.stages), rules);
          for (size_t s = 0; s < policy.size(); ++s) policy[s].room = room * p_.budget.cap[s];
          consider(policy);
        }
}

std::pair<int, int> Search::draw_stretch() {
  int from = draw_.below(p_.shape.stages);
  if (draw_.one_in(2)) return {from, from};
  return {from, std::min(p_.shape.stages - 1, from + draw_.below(p_.shape.stages))};
}

/// One rule of some stages.
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
  const double share = p_.shape.chunks > 1 ? .4 : .7;  // orders matter more for several chunks
  Policy now = policy_;
  double value = policy_soft_;
  while (!over(share)) {
    Policy other = now;
    change(other);
    Score score = consider(other);
    double heat = .1 * unit_ * (share - 1 + left());
    if (accepts(score, value, heat)) now = std::move(other), value = score.soft;
  }
}

}  // namespace triax::parallel::synthesis
