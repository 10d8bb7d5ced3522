#pragma once
#include <map>
#include <optional>
#include <string>

#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/train/model/feed.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/runs/report.h"

namespace triax::parallel {

/// Passes over the held-out samples of a task.
class Validation {
 public:
  /// All must outlive it but `place`, which is this rank's in training.
  Validation(const Task& task, World& world, Step& step, const Feed::Place& place)
      : task_(task), world_(world), step_(step), place_(place) {}

  /// Returns the mean loss over all held-out targets after `done` steps; nothing if a rank was
  /// asked to stop meanwhile. Collective.
  std::optional<double> run(int64_t done, Progress& progress);
  /// The scores of the last pass by name (Task::scores): means over all held-out targets.
  const std::map<std::string, double>& scores() const { return scores_; }
  /// Finds faults that would only show at the first validation, hours later. Blanks pad the last
  /// batch: their loss must be 0, or the mean would depend on the mesh. Initial weights may hide
  /// that it is not: where there are blanks, each validation checks. Throws Error 78. Collective.
  void check_blanks(int64_t done);
  /// Throws Error 77 for a loss that is not finite, after `step` steps.
  static void check_finite(std::optional<double> val_loss, int64_t step);

 private:
  std::optional<double> pass(Progress& progress);

  const Task& task_;
  World& world_;
  Step& step_;
  Feed::Place place_;
  std::map<std::string, double> scores_;
  int64_t checked_at_ = -1;  // steps done when blanks were checked last; -1: never
};

}  // namespace triax::parallel
