#pragma once
#include <map>
#include <string>
#include <vector>

#include "triax/parallel/plan/rehearsal.h"
#include "triax/parallel/simulation/virtual_comm.h"

namespace triax::parallel {

struct SimulationOptions {
  TrainOptions train;  ///< resolved and checked
  Hardware hardware;
  Injected injected = {};
  bool trace = false;  ///< keep what the stages of rank 0's pipeline do
};

/// A rank in a simulated step.
struct SimulatedRank {
  Demand demand;
  double seconds = 0;                   ///< of the step, on its clock
  std::map<std::string, double> waits;  ///< those in which it waits: for tp, dp, link
  std::string events = {};              ///< of a trace; empty: none

  double waited() const;
};

/// Simulates a step of every rank of a mesh: the program's own step runs on each, a thread of this
/// process on the meta device. Kernels take the times of `hardware` (VirtualClock), transfers those
/// of VirtualComm. Where new weights are gathered behind the next forward (ZeRO 1 and 2), it is the
/// second step. Throws Error 72 if a rank dies, 71 if the threads do not fit into this machine.
std::vector<SimulatedRank> simulate(const Task& task, const SimulationOptions& o);

/// Returns the seconds of the step: the longest of any rank.
double step_seconds(const std::vector<SimulatedRank>& ranks);
/// Returns a line for each stage: the seconds in which its ranks compute and wait, mean and
/// largest, and their peak of memory.
std::string stage_table(const std::vector<SimulatedRank>& ranks, const MeshShape& mesh);
/// Returns the file of a trace (chrome_trace.h).
std::string trace_of(const std::vector<SimulatedRank>& ranks, const StepOptions& o);

}  // namespace triax::parallel
