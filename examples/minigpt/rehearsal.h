#pragma once
#include <array>
#include <string>

#include "core/memory.h"
#include "core/meta.h"
#include "examples/minigpt/config.h"
#include "parallel/comm/communicator.h"

namespace triax::minigpt {

/// What one rank holds, computes and sends.
struct Demand {
  int64_t peak = 0;        ///< bytes of tensors, at their highest
  int64_t parameters = 0;  ///< elements of this rank's stage, all its ranks together
  std::vector<std::string> layers = {};
  std::array<int64_t, memory::kinds> peaks{};  ///< of each kind
  KernelWork backward, update;                 ///< of one step: up to the gradients, after
  parallel::Ledger::Line tp, dp, links;        ///< of one step
  parallel::Ledger::Line publish;              ///< of weights over dp, after the update
};

/// Runs a step of `c`, resolved and validated, on made-up tokens. On a world of MetaComm nothing
/// is computed and the answer is there at once; on any other it is what the run measured (no work).
/// Collective.
Demand rehearse(const TrainConfig& c, parallel::Communicator& world);

/// The first rank of each stage, each alone on the meta device: ranks of a stage ask for the same.
std::vector<Demand> foresee(const TrainConfig& c);
/// A line for each stage: its layers, parameters and peak. Throws Error 71 if there is less free
/// memory than ranks of this run take on their `device`, which stands for all of them.
std::string preview(const TrainConfig& c, Device device);
/// What to do then.
inline constexpr const char* less_memory =
    "Try a smaller model or --micro-batch, --recompute block, --offload DIR, or --zero 3 on more "
    "machines.";
/// The same, measured: trains two steps on a mesh of threads.
std::vector<Demand> measure(const TrainConfig& c);

}  // namespace triax::minigpt
