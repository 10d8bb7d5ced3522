#pragma once
#include <cmath>
#include <functional>
#include <random>

#include "parallel/pipeline/synthesis/list_scheduler.h"

namespace triax::parallel::synthesis {

/// Numbers that are the same for a seed with every standard library.
class Draw {
 public:
  explicit Draw(uint64_t seed) : bits_(seed) {}
  int below(int n) { return int(bits_() % uint64_t(n)); }
  bool one_in(int n) { return below(n) == 0; }
  double up_to(double most) { return most * 0x1p-53 * double(bits_() >> 11); }

 private:
  std::mt19937_64 bits_;
};

/// The best lists so far, and how much may still be tried.
class Search {
 public:
  Search(const Problem& problem, uint64_t seed, SearchWatch watch);
  /// Lists that need not be the scheduler's.
  void offer(const std::vector<Actions>& lists, double cost);
  /// Until the bound is met or the budget is used. Empty lists if nothing was found.
  void run();
  const std::vector<Actions>& lists() const { return best_; }
  double cost() const { return cost_; }
  double bound() const { return bound_; }

 private:
  /// Is the bound met, or `share` of the budget used?
  bool over(double share) const;
  /// The share of the budget that is left: of the tries that are given, or else of actions.
  double left() const;
  /// A try, whose score is of no interest if its soft score is above `most` and its cost no lower
  /// than the best one's.
  Score consider(const Policy& policy, double most, const std::vector<Actions>* order = nullptr);
  /// The soft score up to which the next try is accepted, as simulated annealing has it: `now`, or
  /// more with a chance that falls with `heat`.
  double limit(double now, double heat) { return now - heat * std::log(1 - draw_.up_to(1)); }

  void try_grid();
  void anneal_policies();
  void anneal_orders();

  /// Stages from one that is drawn to another; often one alone.
  std::pair<int, int> draw_stretch();
  void change(Policy& policy);
  void move_one(Actions& order);
  void move_many(std::vector<Actions>& orders, std::pair<int, int> stretch);

  const Problem& p_;
  ListScheduler scheduler_;
  Draw draw_;
  SearchWatch watch_;
  double bound_, unit_;
  int64_t tried_ = 0;
  std::vector<Actions> best_;
  double cost_ = infinity;
  Policy policy_;  // of the best that a policy alone made
  double policy_soft_ = infinity;
};

}  // namespace triax::parallel::synthesis
