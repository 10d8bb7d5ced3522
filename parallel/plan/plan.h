#pragma once
#include <string>
#include <vector>

#include "parallel/plan/hardware.h"
#include "parallel/plan/rehearsal.h"
#include "parallel/plan/step_time.h"

namespace triax::parallel {

/// What to plan for. What is left open is looked for: sizes of the mesh and a micro-batch of 0, an
/// empty schedule, chunks of 0, and what `given` does not name of `zero`, `recompute` and
/// `sequence-parallel`, unless it is set.
struct PlanOptions {
  TrainOptions train;
  int64_t ranks = 0;  ///< 0: those of the mesh
  std::string hardware = "h100";
  std::string memory;  ///< that tensors of a rank may take; empty: the hardware's
  Framework framework = Framework::triax;  ///< whose steps are timed
  int64_t top = 20;                        ///< rows to print
  bool json = false;                       ///< print an object for each candidate, and nothing else
  bool check = false;                      ///< measure a step of the best on threads
  std::vector<std::string> given{};        ///< settings that the user has fixed
  std::string configured{};  ///< those that --config fixes, with their values; empty: none
  std::string command;       ///< `minigpt train --layers 4`: to train what is planned
};

/// One way to train, and what it takes.
struct Plan {
  TrainOptions options;
  std::vector<Demand> stages;  ///< rehearsed: see Search
  StepTime time;
  double mfu = 0;  ///< part of the peak that the model's FLOP reach

  const Demand& fullest() const;  ///< of the stage whose ranks hold most
  /// Bytes that such a rank needs of its memory: the peak of its tensors, and where that memory is
  /// the host's what was offloaded into it.
  double need(const Hardware& h) const;
};

/// What a search found. Times are predicted for all candidates. Memory is rehearsed in the order of
/// time, on the first, the last and the fullest stages, until `top` meshes fit; of each mesh until
/// something of it fits. What needs more than another that does not fit, or whose weights and kept
/// inputs alone are too much, is not rehearsed. A search of few candidates rehearses all of them.
struct Plans {
  std::vector<Plan> all;  ///< those that fit, fastest first, then the others, smallest first
  size_t candidates = 0;  ///< that were timed
  std::string layers;     ///< of the model: `32 blocks and 2 other layers`
  Elements parameters;    ///< of the model, in full
  std::vector<std::string> refusals;  ///< why other meshes are none of this model's
  Hardware hardware;
  double budget = 0;  ///< bytes that tensors of a rank may take
};

/// Throws Error 78 if the model allows none, for bad sizes and for bad hardware.
Plans plans(const Task& task, const PlanOptions& o);

/// Prints what fits and what does not. Throws Error 78 if nothing does.
Exit plan(const Task& task, const PlanOptions& o);

}  // namespace triax::parallel
