#pragma once
#include <string>
#include <vector>

#include "triax/parallel/comm/communicator.h"

// The facts that ranks of a world exchange about their GPUs, so that all decide alike how GPU
// tensors are moved.
namespace triax::parallel {

struct GpuRank {
  std::string host;
  std::string gpu;            ///< a name unique to this GPU, across hosts
  std::string nccl = {};      ///< version; empty where there is an obstacle
  std::string obstacle = {};  ///< why this rank cannot use NCCL, with the cure
  int gpus = 0;               ///< visible to its process
  int cores = 0;              ///< of its own
  std::string hazard = {};    ///< a variable and its value that let transfers wait for each other
};

/// Returns the facts of the calling process and its GPU, which exists.
GpuRank gpu_rank_of(Device gpu, int cores);

/// Returns the facts of all ranks, on each of them. Collective.
std::vector<GpuRank> gather_gpu_ranks(Communicator& world, const GpuRank& mine);

/// Says why these ranks cannot use NCCL: the fault, the rank, and the cure. Empty if they can.
std::string nccl_obstacle(const std::vector<GpuRank>& ranks);

/// Returns how many GPUs they use.
int gpus_of(const std::vector<GpuRank>& ranks);

/// Returns warnings about settings that make ranks over NCCL slow, or fail later: each names the
/// first such rank, and the cure.
std::string nccl_warnings(const std::vector<GpuRank>& ranks);

}  // namespace triax::parallel
