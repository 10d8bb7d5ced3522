#pragma once
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "core/update.h"
#include "examples/minigpt/feed.h"
#include "examples/minigpt/replica.h"
#include "examples/minigpt/report.h"
#include "optim/adamw.h"
#include "optim/loss_scaler.h"
#include "optim/schedule.h"

namespace triax::minigpt {

/// One rank's share of the model, its optimizer and its place in the data, step by step.
///
/// A step is queued on the device, which decides by itself whether loss and gradient are finite and
/// how far it is clipped; the host reads what came of it when the next step is queued already, so
/// that the device never waits for the host. After one that is not finite no queued step changes
/// anything either; with a loss scale, which the next step needs, the host does not run ahead.
///
/// With --graph the third step is captured as a graph, which all later ones launch: on a new loss
/// scale it is captured anew.
class Stepper {
 public:
  /// All three must outlive it. Collective.
  Stepper(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh);

  /// Queue step `step`: forward, backward and, if loss and gradient are finite, the update.
  /// Collective.
  void take(int64_t step);
  /// Of the steps that were taken: all that may not be on their way any more, or (`all`) all of
  /// them. Throws Error 77 for a step that diverged. Collective.
  enum class Upto { lag, all };
  std::vector<StepRecord> records(Upto upto);
  /// Was a rank asked to stop, as far as records() told?
  bool asked_to_stop() const { return stop_; }
  /// Mean loss over all held-out tokens, shared out over the replicas. Collective.
  double validate();

  Replica& replica() { return replica_; }
  parallel::DataParallel& data() { return replica_.data(); }
  optim::AdamW& adam() { return adam_; }
  optim::LossScaler& scaler() { return scaler_; }

 private:
  struct Pending {
    int64_t step;
    StepRequest request;
    TotalsToCome totals;
  };
  using Batches = std::function<nn::Batch(int64_t micro)>;
  Tensor forward_backward(const Batches& batches, Replica::Watch watch);
  Batches batches_of(int64_t step) const;
  void queue(const Batches& batches);
  void queue_graph(int64_t step);
  void capture(int64_t step);
  StepRecord record(const Pending& p);
  std::string trace_overflow(int64_t step);
  int64_t tokens_per_step() const { return config_.global_batch * config_.model.context; }

  const TrainConfig& config_;
  const TextData& text_;
  parallel::Mesh& mesh_;
  Feed feed_;
  Replica replica_;
  optim::AdamW adam_;
  optim::Schedule schedule_;
  optim::LossScaler scaler_;
  Tensor request_, totals_, decision_;  // StepRequest, StepTotals, StepDecision
  size_t lag_;                          // steps that may be on their way
  std::deque<Pending> pending_;         // taken, not yet recorded
  bool stop_ = false;

  /// With --graph: one step, captured, on batches that lie where it reads them.
  struct Captured {
    int64_t step;
    double loss_scale;
    std::vector<nn::Batch> batches;
    std::unique_ptr<Graph> graph;
  };
  std::optional<Captured> captured_;
  int64_t taken_ = 0;  // steps since the start of this process
};

}  // namespace triax::minigpt
