#include "triax/parallel/comm/gpu/gpu_ranks.h"

#include <gtest/gtest.h>

#include "triax/core/check.h"
#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::parallel::gpu_ranks_test {

/// Two on each of two hosts, each with a GPU of its own and all that NCCL needs.
std::vector<GpuRank> four() {
  std::vector<GpuRank> ranks;
  for (int r = 0; r < 4; ++r)
    ranks.push_back({.host = r < 2 ? "alpha" : "beta",
                     .gpu = fmt::format("{:02x}", r),
                     .nccl = "2.28.9",
                     .gpus = 2,
                     .cores = 8});
  return ranks;
}

TEST(GpuRanks, WithoutAnObstacle) {
  EXPECT_EQ(nccl_obstacle(four()), "");
  EXPECT_EQ(nccl_warnings(four()), "");
  EXPECT_EQ(gpus_of(four()), 4);
}

TEST(GpuRanks, TheFirstRankWithAnObstacleIsNamed) {
  auto ranks = four();
  for (int r : {2, 3}) {
    ranks[size_t(r)].nccl = "";
    ranks[size_t(r)].obstacle = fmt::format("nccl: version 2.{}.1 was found\n  Update it.", r);
  }
  EXPECT_EQ(nccl_obstacle(ranks),
            "nccl: version 2.2.1 was found (rank 2 on host beta)\n  Update it.");
  ranks[2].obstacle = "nccl: none";
  EXPECT_EQ(nccl_obstacle(ranks), "nccl: none (rank 2 on host beta)");
}

TEST(GpuRanks, VersionsThatDiffer) {
  auto ranks = four();
  ranks[3].nccl = "2.27.3";
  EXPECT_EQ(nccl_obstacle(ranks),
            "nccl: rank 0 on host alpha has version 2.28.9, rank 3 on host beta has 2.27.3; all "
            "ranks need the same\n"
            "  Put the directory of one libnccl.so.2 first in LD_LIBRARY_PATH on all hosts, or use "
            "--comm mpi.");
}

TEST(GpuRanks, OnesThatShareAGpu) {
  auto ranks = four();
  ranks[3].gpu = ranks[2].gpu;
  std::string obstacle = nccl_obstacle(ranks);
  EXPECT_EQ(obstacle.find("nccl: ranks 2 and 3 have the same GPU (host beta); NCCL needs one"), 0u);
  EXPECT_EQ(gpus_of(ranks), 3);
}

TEST(GpuRanks, Warnings) {
  auto cores = four(), alone = four(), queue = four();
  cores[1].cores = 3;
  EXPECT_EQ(nccl_warnings(cores).find("warning: rank 1 on host alpha has fewer than 4 cores"), 0u);
  for (GpuRank& r : alone) r.gpus = 1;
  EXPECT_NE(nccl_warnings(alone).find("--gpus-per-node=8 --gpu-bind=none"), std::string::npos);
  EXPECT_EQ(nccl_warnings({alone[0], alone[2]}), "");  // a host with one GPU
  queue[2].hazard = "NCCL_MAX_CTAS=32";
  EXPECT_EQ(nccl_warnings(queue).find("warning: rank 2 on host beta has NCCL_MAX_CTAS=32: tr"), 0u);
}

TEST(GpuRanks, AllKnowTheSame) {
  run_thread_ranks(4, [](std::unique_ptr<Communicator> world) {
    auto given = four();
    given[1].obstacle = "two\nlines";
    given[3].hazard = "NCCL_MAX_CTAS=32";
    auto all = gather_gpu_ranks(*world, given[size_t(world->rank())]);
    ASSERT_EQ(all.size(), 4u);
    for (size_t r = 0; r < 4; ++r) {
      EXPECT_EQ(all[r].host, given[r].host);
      EXPECT_EQ(all[r].gpu, given[r].gpu);
      EXPECT_EQ(all[r].nccl, given[r].nccl);
      EXPECT_EQ(all[r].obstacle, given[r].obstacle);
      EXPECT_EQ(all[r].gpus, given[r].gpus);
      EXPECT_EQ(all[r].cores, given[r].cores);
      EXPECT_EQ(all[r].hazard, given[r].hazard);
    }
  });
}

}  // namespace triax::parallel::gpu_ranks_test
