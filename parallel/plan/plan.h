#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "triax/parallel/plan/hardware.h"
#include "triax/parallel/plan/rehearsal.h"
#include "triax/parallel/plan/step_time.h"

namespace triax::parallel {

/// The options of a search. Open values are searched for: sizes of the mesh and a micro-batch of 0,
/// an empty schedule, chunks of 0, and those of `zero`, `recompute` and `sequence-parallel` that
/// `given` does not name and that are not set.
struct PlanOptions {
  TrainOptions train;
  int64_t ranks = 0;  ///< 0: those of the mesh
  std::string hardware = "h100";
  std::optional<Hardware> measured{};     ///< takes the place of `hardware`
  std::string memory;                     ///< for tensors of a rank; empty: the hardware's
  int64_t top = 20;                       ///< rows to print
  bool json = false;                      ///< print only an object for each candidate
  bool check = false;                     ///< measure a step of the best on threads
  std::vector<std::string> given{};       ///< settings that the user has fixed
  std::vector<std::string> configured{};  ///< those that --config alone fixes: `micro-batch 4`
  std::string command;  ///< `minigpt train --layers 4`: the command that trains the plan
};

/// Opens what a search looks for: of the settings those for whose name `opens` is true.
void leave_open(StepOptions& o, const std::function<bool(const std::string& name)>& opens);
/// Opens all but settings of these names.
void leave_open(StepOptions& o, const std::vector<std::string>& fixed);

/// A way to train, with its time and memory.
struct Plan {
  TrainOptions options;
  std::vector<Demand> stages;  ///< the rehearsed ones: see Search
  StepTime time;
  double mfu = 0;  ///< the part of the peak that the model's FLOP reach
  size_t way = 0;  ///< its place among the candidates, fastest first

  const Demand& fullest() const;  ///< of the stage whose ranks hold most
  /// Returns the bytes that such a rank needs of its memory: the peak of its tensors, and where
  /// that memory is the host's also those offloaded into it.
  double need(const Hardware& h) const;
};

/// The result of a search. Times are predicted for all candidates. Memory is rehearsed in the order
/// of time, on the first, the last and the fullest stages, until `top` meshes fit; of each mesh
/// until something fits. Passed over is what needs more than a candidate that does not fit, or
/// whose weights and kept inputs alone are too much. Few candidates are all rehearsed. The first
/// plan is the simplest (simpler()) of those that take at most `tie` times the fastest's time.
struct Plans {
  static constexpr double tie = 1.02;
  std::vector<Plan> all;  ///< those that fit, the first apart fastest first, then smallest first
  size_t candidates = 0;  ///< the number that was timed
  std::string layers;     ///< of the model: `32 blocks and 2 other layers`
  Elements parameters;    ///< of the model, in full
  std::vector<std::string> refusals;  ///< why other meshes do not fit this model
  Hardware hardware;
  double budget = 0;  ///< bytes that tensors of a rank may take

  bool fits(const Plan& p) const { return p.need(hardware) <= budget; }
};

/// Searches; where nothing fits, also among plans that offload state, unless `offload` is given.
/// Throws Error 78 if the model allows no plan, for bad sizes and for bad hardware.
Plans plans(const Task& task, const PlanOptions& o);

/// Returns them as JSON, an object for each, which `plan --json` prints.
std::vector<std::string> plans_json(const Task& task, const Plans& found);

/// Prints and returns the plans that fit and those that do not. Throws Error 78 if none does.
Plans plan(const Task& task, const PlanOptions& o);

}  // namespace triax::parallel
