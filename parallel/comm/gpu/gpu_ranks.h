#pragma once
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

// What the ranks of a world tell each other about their GPUs, so that all decide alike how tensors
// of GPUs are moved.
namespace triax::parallel {

struct GpuRank {
  std::string host;
  std::string gpu;            ///< a name that no other GPU has, on any host
  std::string nccl = {};      ///< version; empty where there is an obstacle
  std::string obstacle = {};  ///< why this rank cannot use NCCL, with the cure
  int gpus = 0;               ///< that its process sees
  int cores = 0;              ///< that it has for itself
  bool one_queue = false;     ///< CUDA_DEVICE_MAX_CONNECTIONS=1
};

/// The calling process with its GPU, which exists.
GpuRank gpu_rank_of(Device gpu, int cores);

/// Collective. Of all ranks, on each of them.
std::vector<GpuRank> gather_gpu_ranks(Communicator& world, const GpuRank& mine);

/// Why these ranks cannot use NCCL: what is wrong, on which rank, and the cure. Empty if they can.
std::string nccl_obstacle(const std::vector<GpuRank>& ranks);

/// How many GPUs they use.
int gpus_of(const std::vector<GpuRank>& ranks);

/// Returns warnings about settings that make ranks over NCCL slow, or fail later: each names the
/// first such rank, and the cure.
std::string nccl_warnings(const std::vector<GpuRank>& ranks);

}  // namespace triax::parallel
