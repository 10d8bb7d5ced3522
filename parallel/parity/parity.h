#pragma once
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "triax/nn/batch.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// The experts that routers chose in a run whose ranks are threads of this process. Of two scores
/// that are equal but for rounding a mesh may take another than one rank does, and both are right:
/// it follows the choices noted there, in such rows alone.
class NotedChoices final : public nn::Choices {
 public:
  /// Follows `noted`, which must outlive this, where the scores of both choices are within `near`
  /// of the larger, place by place.
  explicit NotedChoices(const NotedChoices* noted = nullptr, double near = 0)
      : noted_(noted), near_(near) {}
  Tensor settled(const std::string& router, const std::vector<int64_t>& serial,
                 const Tensor& chosen, const Tensor& scores) const override;

  struct Rows {
    int64_t followed = 0;  ///< in which other experts were taken than the rank's own scores say
    int64_t all = 0;       ///< that were routed; a row counts on each rank of tp
  };
  Rows rows() const { return rows_; }

 private:
  using Experts = std::vector<int32_t>;  // of a row
  bool follows(const Experts& mine, const Experts& theirs, const float* scores) const;

  const NotedChoices* noted_;
  double near_;
  mutable std::mutex lock_;
  mutable Rows rows_;
  mutable std::map<std::pair<std::string, int64_t>, Experts> of_;  // by router and row
};

/// A full tensor put together from the ranks that hold pieces of it.
struct Assembled {
  std::vector<float> values;
  std::vector<bool> known;  ///< per element: true if a rank has brought it
  std::string conflict;     ///< where two ranks brought different bits; empty: nowhere
  int64_t missing() const;
};
/// The full tensors by name: `block0.qkv.weight`, `block0.qkv.weight/m`, or of a layer.
using Wholes = std::map<std::string, Assembled>;

/// One step, with the full tensors of all ranks.
struct TraceStep {
  double loss = 0;
  std::vector<double> norms;  ///< norm of the gradient, as each rank has it
  bool skipped = false;
  double loss_scale = 1;
  Wholes activations;  ///< outputs of layers, the micro-batches of all replicas along dim 0
  Wholes gradients;    ///< times the loss scale
  Wholes state;        ///< weights and optimizer state after the step
};

/// The record of a run, from its first state on.
struct Trace {
  std::vector<std::string> layers, parameters;  ///< in the order of computation, of declaration
  std::vector<std::string> buffers = {};
  Wholes initial;
  std::vector<TraceStep> steps;
  std::shared_ptr<const NotedChoices> choices = {};
};

/// An earlier trace that a run follows, in its states, its choices or both.
struct Lead {
  const Trace* states = nullptr;   ///< every step starts from the state that it had before it
  const Trace* choices = nullptr;  ///< the experts it chose, where scores are within `near`
  double near = 0;
};

/// Trains `task` on the mesh of `o`, whose ranks are threads of this process, for `o.steps` steps,
/// and returns the trace. Where every step starts from the states of `lead`, every difference is
/// due to this step.
Trace trace(const Task& task, TrainOptions o, const Lead& lead = {});

/// The first thing in which two runs differ beyond rounding.
struct Difference {
  int64_t step = 0;      ///< from 1; 0: before the first
  std::string what;      ///< `activation`, `loss`, `gradient`, `gradient norm`, `weight`, `moment`,
                         ///< `buffer`;
                         ///< behind it ` on replicas` if ranks that should have the same have not
  std::string name;      ///< the tensor or layer; empty for loss and norm
  std::string how_much;  ///< largest difference, its place, and the bound
  std::string guess;     ///< a frequent cause; empty: no idea
};

/// The differences that rounding may make. Loss, norm, weights: relative to their own; gradients,
/// moments and activations: to the largest of their kind.
struct ParityBounds {
  double loss = 1e-6, norm = 5e-5, gradient = 1e-5, activation = 1e-5, weight = 1e-5;
  double update = 0;  ///< absolute: the effect of rounding on an update, in proportion to the rate
  /// The absolute bound for weights whose gradient is rounding alone (such as key biases, whose
  /// true gradient is 0), which AdamW turns into whole updates; with Lion also for weights whose
  /// moment and gradient cancel, so that rounding decides the sign of the update.
  double noise = 0;
  struct LostSigns {
    double beta1 = 0, clip = 0;  ///< Lion's; beta1 0: only the gradient counts
  } lion = {};
  /// The absolute bound for the matrices that Muon updates, where it is larger than `update`.
  double muon = 0;
  /// The relative bound of the norm from the second step on, if above 0, where weights drift apart
  /// by that noise; activations, gradients and moments must be there, and equal on replicas.
  double drift = 0;
};

/// Compares `run`, on `mesh`, with `reference`, on one rank, within a step in the order of
/// computation: activations forward, the loss, gradients backward, the norm, then weights and
/// moments as declared. Everything must be there, and equal bit for bit where ranks hold the same.
std::optional<Difference> first_difference(const Trace& reference, const Trace& run,
                                           const MeshShape& mesh, const ParityBounds& bounds);

/// The micro-batches of the reference: the whole batch as one, or those of the mesh.
enum class OneRank : int { whole_batch, same_micro_batches };
/// Returns the options of the same model and data on one rank: no recomputation, nothing sharded.
TrainOptions reference_of(TrainOptions o, OneRank takes = OneRank::whole_batch);

/// Is called with a run when it is over; `another`: one more run follows.
using SeeRun = std::function<void(const Trace& run, bool another)>;
/// Compares a mesh twice with `reference`, a trace of reference_of(o): led by the reference, within
/// tight bounds; then running free, where rounding drifts, but where what a step leaves behind
/// counts (a forgotten publish shows here alone).
std::optional<Difference> compare_with_reference(const Task& task, const TrainOptions& o,
                                                 const Trace& reference, const SeeRun& see = {});

/// Fills in `o.step.global_batch`, unless it is given, so that a replica has several micro-batches,
/// and as many as pipeline stages. The reference has one, unless it is asked for the same: faults
/// that several alone have would not be seen otherwise.
void choose_batch(TrainOptions& o);

/// Is called with the reference and a run when that is over; `another`: one more run follows.
using SeeRuns = std::function<void(const Trace& reference, const Trace& run, bool another)>;
/// Trains `task` on one rank and on the mesh of `o`, which is resolved, for `o.steps` steps, with
/// ranks that are threads of this process. Returns the first difference. Throws Error.
std::optional<Difference> find_difference(const Task& task, const TrainOptions& o, OneRank takes,
                                          const SeeRuns& see);

/// Does so on the batch that choose_batch says; prints loss and norm of every step
/// and the first difference: activations of every layer, loss, gradients, norm, weights, optimizer
/// state. Returns ok or differs. Throws Error.
Exit parity(const Task& task, TrainOptions o, OneRank takes = OneRank::whole_batch);

}  // namespace triax::parallel
