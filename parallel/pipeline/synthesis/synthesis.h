#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "triax/parallel/pipeline/simulate.h"

namespace triax::parallel {

/// The limits of a schedule and the objective that makes it good.
struct Budget {
  enum Objective : uint8_t {
    /// The longest of the stages' times, each from its first begin to its last end, which counts
    /// where every stage starts its next step by itself (Qi et al. 2023, section 4).
    longest_stage,
    /// The end of the last action, which counts where all stages wait for each other after a step,
    /// as for the norm of all gradients.
    makespan
  };
  /// The most that each stage may hold, in activations of one micro-batch in a whole stage; the
  /// first stage of 1F1B holds as many as there are stages.
  std::vector<double> cap;
  /// The part of an activation that is kept from the end of backward_input to the end of
  /// backward_weight. Above 1 if gradients that are kept for it outweigh what is freed.
  double hold = 1;
  Objective objective = longest_stage;
  /// The number of tries. 0: at least 100, and as many as make 40 million actions, some seconds.
  int64_t tries = 0;
  double effort = 1;  ///< a factor of those 40 million
};

/// Returns `span`, `makespan`.
const char* name(Budget::Objective objective);

/// True if a cost is no more than a bound, but for rounding.
inline bool meets(double cost, double bound) { return cost <= bound * (1 + 1e-6); }

/// The result of a search.
struct Synthesis {
  std::vector<Actions> lists;  ///< of forward, backward_input, backward_weight
  double cost = 0;             ///< Budget::objective
  double bound = 0;            ///< no schedule within the budget costs less
  std::vector<double> peak;    ///< per stage, in the unit of Budget::cap
  /// True if no schedule can be better.
  bool optimal() const { return meets(cost, bound); }
};

/// Called with the progress of a search: the share that is done, its best cost so far (infinite
/// before it found anything) and Synthesis::bound.
using SearchWatch = std::function<void(double share, double cost, double bound)>;

/// Searches for the cheapest schedule within the budget: lists of a greedy scheduler whose rules
/// are annealed, then their order; in a V patterns that repeat; then the order of the best lists.
/// Begins with the named schedules that fit, and so is never worse than they.
/// Deterministic in its arguments. Each result is proven: complete, free of deadlock, within the
/// caps, its cost that of simulate(). Throws Error 78 for a shape, times or budget that no schedule
/// can have. `watch` is called after each try.
///
/// Handles one chunk per stage, or two in a V. After Qi et al. 2023 (appendix G: the same problem
/// as an integer program) and 2024 (patterns); the bound is explained in lower_bound.cpp.
Synthesis synthesize(const PipelineShape& shape, const StageTimes& times, const Budget& budget,
                     uint64_t seed, const SearchWatch& watch = nullptr);

/// Returns a cost that no schedule within the budget can beat; Synthesis::bound.
double lower_bound(const PipelineShape& shape, const StageTimes& times, const Budget& budget);

/// Returns the Budget::objective of a simulation that ended.
double cost_of(const Simulation& simulation, Budget::Objective objective);

/// Returns the busiest stage's compute time: the cost of a schedule without a bubble.
double busiest(const PipelineShape& shape, const StageTimes& times);

/// Returns the most that a stage with this list holds at once, as peak_memory().
double most_held(const Actions& list, const PipelineShape& shape, double hold);
/// Returns the most that each stage holds at once, in activations of a whole stage. After a whole
/// backward nothing is kept.
std::vector<double> peak_memory(const std::vector<Actions>& lists, const PipelineShape& shape,
                                double hold);
/// True if no stage holds more than it may.
bool within(const Budget& budget, const std::vector<double>& peak);

/// Returns the schedule's lists if it fits the shape, else none.
std::vector<Actions> lists_that_fit(const Schedule& schedule, const PipelineShape& shape);

/// Throws Error 78 unless there are positive, finite times of every virtual stage.
void check_times(const PipelineShape& shape, const StageTimes& times);
/// Throws Error 78 unless hold is in [0, 1000] and every cap has room for one micro-batch.
void check_budget(const PipelineShape& shape, const Budget& budget);

/// True if activations may go to host memory: a copy has a time.
bool offloads(const StageTimes& times);

/// Returns the lists within the budget. Where a stage would hold too much, activations go to host
/// memory, those first whose backward is furthest (Belady 1966; by lifespan as Wan et al.,
/// "PipeOffload", 2025), and come back shortly before it. The order of passes stays. Of a few rules
/// for when to copy the cheapest lists are returned; none if a stage has too little room for any.
std::vector<Actions> offloaded(const std::vector<Actions>& lists, const PipelineShape& shape,
                               const StageTimes& times, const Budget& budget);

}  // namespace triax::parallel
