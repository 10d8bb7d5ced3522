#pragma once
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "triax/core/error.h"
#include "triax/core/host_copy.h"
#include "triax/core/numbers/update.h"
#include "triax/optim/loss_scaler.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {

/// The input of one step.
struct StepInput {
  int64_t number = 1;  ///< the step's, from 1: attempts, data consumed
  Batches batches;     ///< micro-batches of this replica
  double weight = 1;   ///< targets that count, over all replicas: the loss, a sum, is divided by it
  double lr = 0;
};

/// A loss or gradient that is not finite, or data that made it so: thrown on all ranks alike.
struct Diverged : Error {
  explicit Diverged(const Error& e) : Error(e) {}
};

/// The result of a step, alike on all ranks.
struct StepResult {
  int64_t step = 0;
  double loss = 0;       ///< mean over all targets that count
  double grad_norm = 0;  ///< before clipping, without the loss scale
  double lr = 0, weight = 0, loss_scale = 1;
  double memory_bytes = 0;    ///< high-water of tensor memory, largest rank
  double expert_load = 0;     ///< choices of the busiest expert, over the mean; 0: none
  bool skipped = false;       ///< loss or gradient was not finite: nothing was changed
  std::string overflow = {};  ///< the origin of the first inf or NaN of a skipped step
};

class Step;

/// Sees a step from inside. Called on every rank, each of which has its part.
struct StepObserver {
  LayerObserver layer = {};
  std::function<void(const Step&)> gradients = {};  ///< after their sum over all ranks, unclipped
  const nn::Choices* choices = nullptr;             ///< Batch::choices in training
  std::function<void()> update = {};                ///< before it, after `gradients`
};

/// The training step of one rank: the only place where the order of an update is written. Training,
/// parity, the planner's rehearsal and tests run this one. Its accessors are const, so that nobody
/// else can change weights, forget to publish them, or begin a step.
///
/// A step is queued on the device, which decides by itself whether loss and gradient are finite and
/// how far it is clipped; the host reads the result when the next step is queued already, so that
/// the device never waits for the host. After one that is not finite no queued step changes
/// anything either; with a dynamic loss scale, which the next step needs, the host does not run
/// ahead.
class Step {
 public:
  /// `o` is resolved and checked; `mesh` must outlive it. Collective, as everything below.
  Step(Mesh& mesh, const Build& build, const StepOptions& o, Facts facts,
       StepObserver observer = {});

  /// Queues a step: forward, backward and, if loss and gradient are finite, the update.
  void take(const StepInput& input);
  /// Returns results of the oldest steps: all but those that may still be queued (`oldest`), or of
  /// every step taken. Throws Error 77 for a step that diverged.
  enum class Await { oldest, all };
  std::vector<StepResult> results(Await await);
  /// True if a rank was asked to stop, as far as results() told.
  bool asked_to_stop() const { return stop_; }
  /// Calls `f` with the optimizer's averaged weights (state of kind `average`), if it has some, in
  /// the weights' place; afterwards these are back, bit for bit.
  void with_average(const std::function<void()>& f);
  /// Returns the loss over the micro-batches of all replicas, as numbers that may be added to those
  /// of other micro-batches: sums_of() of them is one sum.
  std::vector<double> evaluate(const Batches& batches, int64_t micros);
  std::vector<double> sums_of(std::span<const double> parts) const;
  /// Returns scores likewise, in the order of names: as many sums.
  std::vector<double> score(const Batches& batches, int64_t micros, const Scores& scores);

  /// Return this rank's weights, buffers and optimizer state, and a checkpoint's other values.
  std::vector<Piece> pieces(Holder whose) const;
  CheckpointState state() const;
  /// Calls `fill` to write into the pieces that it is given; afterwards every rank gets the weights
  /// that others hold.
  void restore(const std::function<void(const std::vector<Piece>&)>& fill,
               const CheckpointState& state);

  const StepOptions& options() const { return options_; }
  const Mesh& mesh() const { return mesh_; }
  const Replica& replica() const { return replica_; }
  /// Returns the number of updates that happened, skipped steps not counted.
  int64_t updates() const { return optimizer_->steps(); }
  double loss_scale() const { return scaler_.scale(); }

 private:
  struct Pending {
    StepInput input;
    StepRequest request;
    HostCopy totals, tops;
  };
  /// A captured step, on batches that lie where it reads them.
  struct Captured {
    int64_t step;
    double loss_scale, weight;
    std::vector<nn::Batch> batches;
    std::unique_ptr<Graph> graph;
  };
  void check_graph() const;
  Replica::Seed seed(const StepInput& input) const {
    return {scaler_.scale(), input.weight / options_.mesh.ranks_along(Cuts::weights)};
  }
  void add_up(const Tensor& loss);
  void queue(const StepInput& input);
  void replay(const StepInput& input);
  void capture(const StepInput& input);
  Tensor tops() const;
  StepResult result(const Pending& p);
  void check_finite(const StepResult& r, const StepInput& input) const;
  void check_data(const StepInput& input) const;
  std::string trace_overflow(const StepInput& input);

  StepOptions options_;
  StepObserver observer_;
  Mesh& mesh_;
  Replica replica_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  Tensor request_, totals_, decision_;  // StepRequest, StepTotals, StepDecision
  size_t lag_;                          // the most steps that may be queued unread
  std::deque<Pending> pending_;         // taken, not yet read
  bool stop_ = false;
  std::optional<Captured> captured_;
  int64_t taken_ = 0;  // steps taken since construction
};

/// Returns `block0.up.weight of rank 1, micro-batch 2`; empty for none.
std::string describe(const DataParallel::NonFinite& found);

/// Compares, bit for bit, replicated weights, buffers and optimizer state after `number` steps:
/// data-parallel replicas all of it, tensor-parallel ranks what they do not split, both ends of a
/// pipeline a tied embedding. Equal sums went into all of them, so that on hosts of one instruction
/// level any difference is a fault of a machine. Collective. Throws Error 76 on all ranks, which
/// names the ranks outside of the majority and the first tensor that differs.
void check_replicas(const Step& step, Communicator& ranks, int64_t number);

/// Returns the number as it is printed: a NaN without its sign, which means nothing.
inline double unsigned_nan(double x) { return std::isnan(x) ? NAN : x; }

}  // namespace triax::parallel
