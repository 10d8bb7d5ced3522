#pragma once
#include <string>
#include <vector>

#include "triax/parallel/plan/plan.h"

namespace triax::parallel {

/// A way to train, with its time.
struct Candidate {
  MeshShape mesh;
  Zero zero = Zero::off;
  bool sequence_parallel = false;
  std::string schedule;
  int chunks = 1;
  int64_t micro_batch = 1;
  Recompute recompute = Recompute::off;
  StepTime time = {};
  bool timed = false;              ///< else `time` is StepTimes::estimate
  std::vector<double> state = {};  ///< per stage: bytes of weights, gradients, optimizer of a rank
  bool known_state = false;        ///< `state` has all of the optimizer's state
  std::vector<Kept> kept = {};     ///< per stage, in passes through one of `chunks`
  Placement placement = {};        ///< of the schedule
  double least = 0;                ///< bytes that a rank certainly needs

  /// Returns `base`, trained this way.
  TrainOptions options(const TrainOptions& base) const;
};

/// True if `a` has fewer axes of several ranks than `b`; among equals a lower stage of ZeRO, then
/// 1f1b or gpipe and not another schedule, then less recomputation, no sequence parallelism, fewer
/// chunks.
bool simpler(const Candidate& a, const Candidate& b);

/// The ways that can be trained, and why others cannot.
struct Candidates {
  std::vector<Candidate> all;
  std::vector<std::string> refusals;  ///< each once
};

/// Returns all that `o` leaves open, fastest first by estimate. Left out: tensor parallelism over
/// more than two nodes; schedules that are idle at least as long as another of as many chunks and
/// keep no fewer activations, also of those that wait for their weight gradients; micro-batches
/// that are neither a power of two nor all samples of a replica, or more than 64 samples; selective
/// recomputation where no layer offers it.
Candidates candidates(const PlanOptions& o, const Hardware& h, StepTimes& times);

/// A rehearsed candidate, with the peaks of some of its stages.
struct Rehearsed {
  Candidate candidate;
  std::vector<std::pair<int, double>> peaks = {};  ///< stage, bytes
};
/// Returns the least bytes that `c` needs, judged by a rehearsed candidate of the same mesh. Its
/// activations are scaled by the size of a micro-batch and by how many are kept (Kept), where `c`
/// has fewer; 0.85 of that is the bound, since part of what is held does not scale. With another
/// number of chunks a stage has other layers: activations count 0.6. 0 where no bound is known:
/// more recomputation, another placement, another ZeRO stage than its 2 or 3.
double least_beside(const Candidate& c, const Rehearsed& other);

}  // namespace triax::parallel
