#include "triax/parallel/comm/gpu/gpu_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>
#include <string_view>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

/// Returns the fields, each with its end, in the order of read().
std::string written(const GpuRank& r) {
  std::string text;
  for (const std::string& field : {r.host, r.gpu, r.nccl, r.obstacle, r.hazard,
                                   std::to_string(r.gpus), std::to_string(r.cores)})
    text += field + '\0';
  return text;
}

GpuRank read(std::istream& in) {
  GpuRank r;
  std::string gpus, cores;
  for (std::string* field : {&r.host, &r.gpu, &r.nccl, &r.obstacle, &r.hazard, &gpus, &cores})
    std::getline(in, *field, '\0');
  r.gpus = std::stoi(gpus);
  r.cores = std::stoi(cores);
  return r;
}

using Ranks = std::vector<GpuRank>;

std::string place(const Ranks& ranks, Ranks::const_iterator rank) {
  return fmt::format("rank {} on host {}", rank - ranks.begin(), rank->host);
}

}  // namespace

GpuRank gpu_rank_of(Device gpu, int cores) {
  GpuRank mine{
      .host = host_name(), .gpu = gpu_uuid(gpu.index), .gpus = gpu_count(), .cores = cores};
  std::vector<std::string> hazards;
  for (const char* name :
       {"CUDA_DEVICE_MAX_CONNECTIONS", "NCCL_LAUNCH_ORDER_IMPLICIT", "NCCL_MAX_CTAS",
        "NCCL_MIN_CTAS", "NCCL_MIN_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MIN_P2P_NCHANNELS"}) {
    const char* value = std::getenv(name);
    bool bounds = std::string_view(name).starts_with("NCCL_M");
    if (value && (bounds || value == std::string_view("1")))
      hazards.push_back(fmt::format("{}={}", name, value));
  }
  mine.hazard = join(hazards, ", ");
  try {
    mine.nccl = nccl_version();
  } catch (const Error& e) {
    mine.obstacle = e.what();
  }
  return mine;
}

std::vector<GpuRank> gather_gpu_ranks(Communicator& world, const GpuRank& mine) {
  std::string all;
  for (const std::string& text : gather_text(world, written(mine))) all += text;
  std::istringstream in(broadcast_text(world, all));
  std::vector<GpuRank> ranks;
  while (std::ssize(ranks) < world.size()) ranks.push_back(read(in));
  return ranks;
}

std::string nccl_obstacle(const std::vector<GpuRank>& ranks) {
  auto with = std::ranges::find_if(ranks, [](auto& r) { return !r.obstacle.empty(); });
  if (with != ranks.end()) {
    std::string text = with->obstacle;
    return text.insert(std::min(text.find('\n'), text.size()),
                       fmt::format(" ({})", place(ranks, with)));
  }
  auto other = std::ranges::find_if(ranks, [&](auto& r) { return r.nccl != ranks[0].nccl; });
  if (other != ranks.end())
    return fmt::format(
        "nccl: {} has version {}, {} has {}; all ranks need the same\n"
        "  Put the directory of one libnccl.so.2 first in LD_LIBRARY_PATH on all hosts, or use "
        "--comm mpi.",
        place(ranks, ranks.begin()), ranks[0].nccl, place(ranks, other), other->nccl);
  for (size_t b = 0; b < ranks.size(); ++b)
    for (size_t a = 0; a < b; ++a)
      if (ranks[a].gpu == ranks[b].gpu)
        return fmt::format(
            "nccl: ranks {} and {} have the same GPU (host {}); NCCL needs one for each rank\n"
            "  Start no more ranks on a host than it has GPUs (with --device cuda each takes its "
            "own),\n  or use --comm mpi, which lets ranks share a GPU.",
            a, b, ranks[a].host);
  return {};
}

int gpus_of(const std::vector<GpuRank>& ranks) {
  std::set<std::string> names;
  for (const GpuRank& r : ranks) names.insert(r.gpu);
  return int(names.size());
}

std::string nccl_warnings(const std::vector<GpuRank>& ranks) {
  constexpr int enough_cores = 4;
  std::string text;
  auto warn = [&](auto is_wrong, const std::string& what) {
    auto found = std::ranges::find_if(ranks, is_wrong);
    if (found != ranks.end()) text += fmt::format("warning: {} {}\n", place(ranks, found), what);
  };
  warn([](auto& r) { return r.cores < enough_cores; },
       fmt::format("has fewer than {} cores to itself, for kernel launches and NCCL's threads\n"
                   "  srun: --cpus-per-task=12. mpirun: --bind-to none. A container: more CPUs.",
                   enough_cores));
  auto sees_its_own_alone = [&](const GpuRank& r) {
    return r.gpus == 1 && std::ranges::any_of(ranks, [&](const GpuRank& other) {
             return other.host == r.host && other.gpu != r.gpu;
           });
  };
  warn(sees_its_own_alone,
       "sees its own GPU alone: NCCL may fail, or not use NVLink\n"
       "  srun: --gpus-per-node=8 --gpu-bind=none in place of --gpus-per-task.");
  auto with = std::ranges::find_if(ranks, [](auto& r) { return !r.hazard.empty(); });
  if (with != ranks.end())
    text += fmt::format(
        "warning: {} has {}: transfers may wait for each other, some schedules for ever\n"
        "  Leave it unset.\n",
        place(ranks, with), with->hazard);
  return text;
}

}  // namespace triax::parallel
