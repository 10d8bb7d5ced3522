#pragma once
#include <cmath>
#include <random>

#include "triax/parallel/pipeline/synthesis/list_scheduler.h"

namespace triax::parallel::synthesis {

/// Random numbers that are the same for a seed with every standard library.
class Draw {
 public:
  explicit Draw(uint64_t seed) : bits_(seed) {}
  int below(int n) { return int(bits_() % uint64_t(n)); }
  bool one_in(int n) { return below(n) == 0; }
  double up_to(double most) { return most * 0x1p-53 * double(bits_() >> 11); }

 private:
  std::mt19937_64 bits_;
};

/// A search: the best lists so far, and the budget of tries that is left.
class Search {
 public:
  Search(const Problem& problem, uint64_t seed, SearchWatch watch);
  /// Offers lists that need not be the scheduler's.
  void offer(const std::vector<Actions>& lists, double cost);
  /// Offers the order of forwards and backwards of lists, with weights wherever there is time.
  void offer_order(const std::vector<Actions>& lists) { orders_.push_back(lists); }
  /// Runs until the bound is met or the budget is used. lists() is empty if nothing was found.
  void run();
  const std::vector<Actions>& lists() const { return best_; }
  double cost() const { return cost_; }
  double bound() const { return bound_; }

 private:
  /// True if the bound is met, or `share` of the budget used.
  bool over(double share) const { return meets(cost_, bound_) || left() <= 1 - share; }
  /// Returns the share of the budget that is left: of the given tries, or else of actions.
  double left() const;
  /// Makes a try. Its score may be infinite if its soft score is above `most` and its cost no lower
  /// than the best one's.
  Score consider(const Policy& policy, double most, const std::vector<Actions>* order = nullptr);
  /// Returns the soft score up to which the next try is accepted, as in simulated annealing: `now`,
  /// or more with a chance that falls with `heat`.
  double limit(double now, double heat) { return now - heat * std::log(1 - draw_.up_to(1)); }

  void try_grid();
  void anneal_policies();
  void try_blocks();
  /// Anneals the order of the best lists: with weights, or of forwards and backwards alone.
  enum class Weights : uint8_t { free, told };
  /// Takes the weights out of an order and tries rules by which they come, the same on all stages.
  /// Returns the best rules and lowers `value` to their soft score.
  Policy try_weights(std::vector<Actions>& order, double& value, double most);
  /// Returns an idle time that is `share` of the best cost's.
  double idle(double share) const { return share > 0 ? share * (cost_ - work_) : 0; }
  void anneal_orders(Weights weights, double share);

  /// Draws a range of stages, often one alone.
  std::pair<int, int> draw_stretch();
  void change(Policy& policy);
  void move_one(Actions& order);
  void move_many(std::vector<Actions>& orders, std::pair<int, int> stretch);

  const Problem& p_;
  ListScheduler scheduler_;
  Draw draw_;
  SearchWatch watch_;
  double bound_, unit_, work_;  // work: of the busiest stage
  int64_t tried_ = 0;
  std::vector<std::vector<Actions>> orders_;
  std::vector<Actions> best_;
  double cost_ = infinity;
  Policy policy_;  // the best one's, of tries by a policy alone
  double policy_soft_ = infinity;
};

}  // namespace triax::parallel::synthesis
