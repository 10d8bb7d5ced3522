#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/pipeline/simulate.h"

namespace triax::parallel {

/// What a schedule may hold, and what makes it good.
struct Budget {
  enum Objective : uint8_t {
    /// The longest of the stages' times, each from its first begin to its last end: what counts
    /// where every stage goes on with its next step by itself (Qi et al. 2023, section 4).
    longest_stage,
    /// The end of the last action: what counts where all stages wait for each other after a step,
    /// as they do for the norm of all gradients.
    makespan
  };
  /// Per stage, the most that it may hold, in activations of one micro-batch in a whole stage; of
  /// 1F1B the first stage holds as many as there are stages.
  std::vector<double> cap;
  /// What is kept from the end of backward_input to the end of backward_weight, in activations.
  /// Above 1 if gradients that are kept for it outweigh what is freed.
  double hold = 1;
  Objective objective = longest_stage;
  /// Schedules to look at. 0: at least 100, and as many as make 30 million actions, some seconds.
  int64_t tries = 0;
};

/// `span`, `makespan`.
const char* name(Budget::Objective objective);

/// Is a cost no more than a bound, but for rounding?
inline bool meets(double cost, double bound) { return cost <= bound * (1 + 1e-6); }

/// A schedule that was looked for.
struct Synthesis {
  std::vector<Actions> lists;  ///< of forward, backward_input, backward_weight
  double cost = 0;             ///< Budget::objective
  double bound = 0;            ///< no schedule within the budget costs less
  std::vector<double> peak;    ///< per stage, in the unit of Budget::cap
  /// No schedule is better.
  bool optimal() const { return meets(cost, bound); }
};

/// How far a search is: the share of it that is done, its best cost so far (infinite before it
/// found anything) and Synthesis::bound.
using SearchWatch = std::function<void(double share, double cost, double bound)>;

/// Looks for the cheapest schedule within the budget: lists of a greedy scheduler whose rules are
/// annealed, then their order itself. Begins with the named schedules that fit, and so is never
/// worse than they. The same for the same arguments. Each result is proven: complete, free of
/// deadlock, within the caps, its cost that of simulate(). Throws Error 78 for a shape, times or
/// budget that no schedule can have. `watch` is told after each try.
///
/// Of one chunk per stage, or two in a V. After Qi et al. 2023 (appendix G: the same problem as an
/// integer program) and a list scheduler; the bound is explained in lower_bound.cpp.
Synthesis synthesize(const PipelineShape& shape, const StageTimes& times, const Budget& budget,
                     uint64_t seed, const SearchWatch& watch = nullptr);

/// What no schedule within the budget can cost less than; Synthesis::bound.
double lower_bound(const PipelineShape& shape, const StageTimes& times, const Budget& budget);

/// Budget::objective of a simulation that ended.
double cost_of(const Simulation& simulation, Budget::Objective objective);

/// Time that the busiest stage computes: a schedule without a bubble costs as much.
double busiest(const PipelineShape& shape, const StageTimes& times);

/// The most that each stage holds at once, in activations of a whole stage. Of a whole backward
/// nothing is kept.
std::vector<double> peak_memory(const std::vector<Actions>& lists, const PipelineShape& shape,
                                double hold);
/// Does no stage hold more than it may?
bool within(const Budget& budget, const std::vector<double>& peak);

/// The schedule's lists where it fits the shape; none where it does not.
std::vector<Actions> lists_that_fit(const Schedule& schedule, const PipelineShape& shape);

/// Throws Error 78 unless there are positive, finite times of every virtual stage.
void check_times(const PipelineShape& shape, const StageTimes& times);
/// Throws Error 78 unless hold is in [0, 1000] and every cap has room for one micro-batch.
void check_budget(const PipelineShape& shape, const Budget& budget);

}  // namespace triax::parallel
