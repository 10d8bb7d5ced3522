#pragma once
#include <limits>
#include <vector>

#include "triax/parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel::synthesis {

constexpr double infinity = std::numeric_limits<double>::infinity();

/// Returns the time of a micro-batch, forward and backward.
inline double total(const Durations& t) { return t.forward + t.backward_input + t.backward_weight; }

/// The problem of a search, with the numbers that every try needs.
struct Problem {
  Problem(const PipelineShape& shape, const StageTimes& times, const Budget& budget);

  int virtual_stages() const { return shape.virtual_stages(); }
  const Durations& times_of(int stage, int chunk) const {
    return times[size_t(shape.virtual_stage(stage, chunk))];
  }

  PipelineShape shape;
  StageTimes times;  ///< latency 0 where an exchange stays on its stage
  Budget budget;
  double activation;  ///< of one chunk, in whole stages
  double growth;      ///< of an activation by its backward_input; a whole backward has none
  double rounding;    ///< times that differ by less are the same
};

/// Returns a cost that no schedule within the budget can beat.
double lower_bound(const Problem& problem);

/// The rules by which one stage decides, when several actions could begin soon. In general: a
/// backward before a forward, both before weights, and no long waits. Times are in units of the
/// action that would begin meanwhile.
struct StagePolicy {
  double weight_waits = .5;  ///< no weights if another action could begin within this
  /// Seconds for which the stage may be idle in all, before weights delay another action; 0: as
  /// long as any stage is. Negative: weights delay others at once.
  double idle = -1;
  double forward_waits = .2;  ///< no forward if a backward could begin within this,
  int early = 1;              ///< or within 1 until so many backwards are done: they set the ramp
  double backward_waits = 0;  ///< no backward if a forward that goes first could begin within this
  int warm = 0;               ///< forwards go first until so many are done
  int tail = 0;               ///< forwards go first when so few are left: they set the way out
  bool turns = false;         ///< after a backward a forward goes first
  double room = 0;            ///< memory that forwards leave free for the last chunk
};
using Policy = std::vector<StagePolicy>;

/// The rating of a try's lists; infinite if it ended early: with memory full of activations that
/// cannot end, or because it would cost more than it may.
struct Score {
  double cost = infinity;
  double soft = infinity;  ///< cost, plus a small part of the stages' average time
};

/// True if a list says when weights come.
bool has_weights(const Actions& list);

/// Builds all lists at once, action by action in the order in which they begin, under the rules of
/// simulate(): a handover takes place when it was sent and the one before it on its channel taken.
class ListScheduler {
 public:
  explicit ListScheduler(const Problem& problem);

  /// Makes a try, which ends as soon as it is seen to cost more than `limit`. With `order`,
  /// forwards and backwards are in that order, and so are weights if it has any, or else wherever
  /// there is time.
  Score run(const Policy& policy, double limit, const std::vector<Actions>* order = nullptr);
  /// Returns the least difference of `soft` and `cost`: no stage takes less than its work.
  double least_difference() const { return softness * work_ / p_.shape.stages; }
  /// Returns the lists of the last run.
  const std::vector<Actions>& lists() const { return lists_; }
  /// Returns the actions of one run that does not end early; below, those done in all runs.
  int64_t actions() const { return int64_t{3} * p_.virtual_stages() * p_.shape.micros; }
  int64_t actions_done() const { return actions_done_; }

 private:
  static constexpr double softness = 0.02;

  struct Choice {
    Action::Kind kind = Action::forward;
    int chunk = -1;
    double at = infinity;
  };
  struct Stage {
    double free = 0, began = -1;  ///< began: its first action; -1: none
    double left = 0;              ///< seconds of the actions that are still to be done
    double idle = 0;              ///< seconds between its actions
    int forwards = 0, inputs = 0, weights = 0;
    Action::Kind last = Action::forward;  ///< weights apart
    size_t next = 0;                      ///< in the order
    Choice choice;
  };
  /// The state of one virtual stage: passes done, and when its last inputs were taken.
  struct Piece {
    int stage = 0;
    int forwards = 0, inputs = 0, weights = 0;
    double forward_taken = 0, input_taken = 0;
  };
  struct Candidates {
    Choice forward{Action::forward}, input{Action::backward_input};
    int weight = -1;  ///< a chunk
  };

  void begin(const Policy& policy, const std::vector<Actions>* order);
  Piece& piece(int s, int chunk) { return pieces_[size_t(p_.shape.virtual_stage(s, chunk))]; }
  const Action* told(const Stage& stage, int s) const;
  /// True if stage s may hold `whole` activations, `halves` after their backward_input, and `more`.
  bool fits(int s, int whole, int halves, double more) const {
    double held = p_.activation * (whole + p_.budget.hold * halves);
    return held + more <= p_.budget.cap[size_t(s)] + 1e-9;
  }
  bool may_begin(int s, int chunk) const;
  double arrival(int v, Action::Kind kind) const;
  Candidates candidates(int s);
  bool prefers_forward(int s, const Candidates& c) const;
  Choice choose(int s);
  void take(int s);
  void hand_on(int v, const Choice& choice, int micro, double end);
  /// Returns the time of the stage's actions so far, in the sense of the objective.
  double span(const Stage& x) const {
    return x.free - (p_.budget.objective == Budget::makespan ? 0 : x.began);
  }
  Score score() const;
  size_t slot(int v, int micro) const {
    return size_t(v) * size_t(p_.shape.micros) + size_t(micro);
  }

  const Problem& p_;
  double work_ = 0;       // seconds of all actions
  double most_idle_ = 0;  // of one stage, with the waits that it has chosen
  int64_t actions_done_ = 0;
  const Policy* policy_ = nullptr;
  const std::vector<Actions>* order_ = nullptr;
  bool tells_weights_ = false;  // the order has weights
  std::vector<Stage> stages_;
  std::vector<Piece> pieces_;
  std::vector<double> forwards_sent_, inputs_sent_;  // by receiver and micro-batch
  std::vector<int> changed_;                         // stages whose choice is out of date
  std::vector<Actions> lists_;
};

}  // namespace triax::parallel::synthesis
