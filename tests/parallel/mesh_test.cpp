#include "triax/parallel/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "tests/support/expect_error.h"
#include "triax/core/error.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/comm/process.h"

namespace triax::parallel::mesh_test {

TEST(Mesh, PlacesCountAlongTheAxesOfASet) {
  MeshShape s{.dp = 2, .pp = 3, .tp = 4, .cp = 5};
  std::set<std::tuple<int, int, int, int>> places;
  for (int r = 0; r < s.size(); ++r) {
    int dp = s.place(r, {"dp"}), pp = s.place(r, {"pp"}), tp = s.place(r, {"tp"}),
        cp = s.place(r, {"cp"});
    places.emplace(dp, pp, tp, cp);
    EXPECT_EQ(((pp * 2 + dp) * 5 + cp) * 4 + tp, r);
    EXPECT_EQ(s.place(r, {"dp", "cp"}), dp * 5 + cp);
    EXPECT_EQ(s.place(r, s.others({"dp", "cp"})), pp * 4 + tp);
    EXPECT_EQ(s.place(r, {}), 0);
  }
  EXPECT_EQ(std::ssize(places), s.size());
  EXPECT_EQ(s.first_rank("pp", 2), 80);
  EXPECT_EQ(s.first_rank("tp", 3), 3);
  EXPECT_EQ(place_of(s, 119), "dp 1, pp 2, cp 4, tp 3");
}

TEST(Mesh, GroupsJoinTheRightRanks) {
  run_worlds(8, [](World& world) {
    Mesh mesh(world.comm(), {.dp = 2, .pp = 2, .tp = 2});
    auto at = [&](int r, const char* axis) { return mesh.shape().place(r, {axis}); };
    EXPECT_EQ(mesh.dp().rank(), at(world.rank(), "dp"));
    EXPECT_EQ(mesh.pp().rank(), at(world.rank(), "pp"));
    EXPECT_EQ(mesh.tp().rank(), at(world.rank(), "tp"));
    auto sum = [](Communicator& c, int value) {
      Tensor x = full({1}, value, i64, cpu);
      c.all_reduce(x).wait();
      return int(x.item());
    };
    int bit = 1 << world.rank();
    auto expected = [&](std::vector<const char*> alike) {
      int bits = 0;
      for (int r = 0; r < 8; ++r)
        bits |= std::ranges::all_of(alike, [&](auto* a) { return at(r, a) == at(world.rank(), a); })
                << r;
      return bits;
    };
    EXPECT_EQ(sum(mesh.world(), bit), 255);
    EXPECT_EQ(sum(mesh.tp(), bit), expected({"dp", "pp"}));
    EXPECT_EQ(sum(mesh.dp(), bit), expected({"tp", "pp"}));
    EXPECT_EQ(sum(mesh.pp(), bit), expected({"tp", "dp"}));
    EXPECT_EQ(sum(mesh.over({"dp", "pp"}), bit), expected({"tp"}));
    EXPECT_EQ(&mesh.over({"tp"}), &mesh.tp());
    EXPECT_EQ(&mesh.data(), &mesh.dp()) << "without cp one group does";
    EXPECT_EQ(mesh.over({"dp", "pp"}).group().name, "pp x dp");
    EXPECT_EQ(test::error_of(
                  [&] {
                    mesh.over({"dp", "xp"});
                  },
                  Exit::internal),
              "mesh: a group over dp, xp; expected axes of dp 2 x pp 2 x tp 2");
  });
}

TEST(Mesh, GradientsAreSummedOverSamplesAndRows) {
  run_worlds(8, [](World& world) {
    Mesh mesh(world.comm(), {.dp = 2, .tp = 2, .cp = 2});
    Tensor x = full({1}, 1 << world.rank(), i64, cpu);
    mesh.data().all_reduce(x).wait();
    EXPECT_EQ(x.item(), world.rank() % 2 == 0 ? 0b01010101 : 0b10101010);
    EXPECT_EQ(mesh.data().group().name, "dp x cp");
    EXPECT_EQ(mesh.cp().rank(), world.rank() / 2 % 2);
    EXPECT_EQ(mesh.data().rank(), world.rank() / 2);
  });
}

TEST(Mesh, ExpertsAreSummedOverThoseWhoHoldTheSame) {
  run_worlds(8, [](World& world) {
    Mesh mesh(world.comm(), {.dp = 2, .cp = 2, .ep = 2});
    EXPECT_EQ(mesh.dp().size(), 4) << "all who have other samples";
    EXPECT_EQ(mesh.data().group().name, "dp x ep x cp");
    EXPECT_EQ(mesh.ep().rank(), world.rank() / 2 % 2);
    Communicator& alike = mesh.data_without({"ep", "tp"});
    EXPECT_EQ(alike.group().name, "dp x cp");
    EXPECT_EQ(alike.size(), 4);
    EXPECT_EQ(&mesh.data_without({"tp"}), &mesh.data());
  });
}

// Axes of samples lie outside of dp, others inside of cp; weights of their own are not summed.
TEST(Mesh, TakesAxesOfPrograms) {
  MeshShape shape{.dp = 2,
                  .more = {{"nodes", Cuts::samples, 2},
                           {"sites", Cuts::samples | Cuts::weights, 3},
                           {"parts", Cuts::features, 2}}};
  EXPECT_EQ(str(shape), "nodes 2 x sites 3 x dp 2 x pp 1 x parts 2 x tp 1");
  EXPECT_EQ(flags(shape), "--nodes 2 --sites 3 --dp 2 --pp 1 --parts 2 --tp 1");
  EXPECT_EQ(shape.size(), 24);
  EXPECT_EQ(shape.replicas(), 12);
  EXPECT_EQ(shape.data(), 4);
  EXPECT_EQ(shape.place(13, {"nodes"}), 1);
  EXPECT_EQ(shape.place(13, {"parts"}), 1);
  EXPECT_EQ(str(shape.ones()), "dp 1 x pp 1 x tp 1");
  run_worlds(24, [&](World& world) {
    Mesh mesh(world.comm(), shape);
    EXPECT_EQ(mesh.data().size(), 4);
    EXPECT_EQ(mesh.over({"sites"}).rank(), world.rank() / 4 % 3);
  });
  std::string said = test::error_of([&] { check_shape(shape, 12); }, Exit::config);
  EXPECT_NE(said.find("With 12 ranks try: --nodes"), said.npos) << said;
}

TEST(Mesh, SuggestsTheAxesThatWereAskedFor) {
  std::string with = test::error_of([] { check_shape({.dp = 2, .cp = 4}, 4); }, Exit::config);
  EXPECT_EQ(with.substr(0, with.find("\n  For")),
            "mesh: dp 2 * pp 1 * cp 4 * tp 1 = 8 does not equal the 4 ranks started\n"
            "  With 4 ranks try: --dp 2 --pp 1 --cp 2 --tp 1, or --dp 1 --pp 1 --cp 4 --tp 1, or "
            "--dp 4 --pp 1 --cp 1 --tp 1");
  EXPECT_EQ(flags({.dp = 2}), "--dp 2 --pp 1 --tp 1");
  EXPECT_EQ(flags({.dp = 2}, {.cp = 2}), "--dp 2 --pp 1 --cp 1 --tp 1");
}

TEST(Mesh, RefusesAnotherNumberOfRanks) {
  EXPECT_EQ(test::error_of([] { check_shape({.dp = 2, .pp = 2, .tp = 3}, 8); }, Exit::config),
            "mesh: dp 2 * pp 2 * tp 3 = 12 does not equal the 8 ranks started\n"
            "  With 8 ranks try: --dp 2 --pp 2 --tp 2, or --dp 4 --pp 2 --tp 1, or "
            "--dp 2 --pp 4 --tp 1\n"
            "  For this mesh: mpirun -np 12 with the same command, or --comm threads --ranks 12");
  EXPECT_THROW(check_shape({.dp = 0, .pp = 2, .tp = 2}, 4), Error);
  EXPECT_EQ(
      test::error_of([] { check_shape({.dp = 65536, .pp = 65536, .tp = 1}, 4); }, Exit::config),
      "mesh: dp 65536 * pp 65536 * tp 1 are more than a million ranks; 4 are started");
  EXPECT_NO_THROW(check_shape({.dp = 2, .pp = 2, .tp = 2}, 8));
}

TEST(Mesh, DescribesItsGroups) {
  EXPECT_EQ(describe(MeshShape{.dp = 2, .pp = 2, .tp = 2}),
            "mesh: dp 2 x pp 2 x tp 2 = 8 ranks\n"
            "  tp    {0, 1} {2, 3} {4, 5} {6, 7}\n"
            "  dp    {0, 2} {1, 3} {4, 6} {5, 7}\n"
            "  pp    {0, 4} {1, 5} {2, 6} {3, 7}\n"
            "  model {0, 1, 4, 5} {2, 3, 6, 7}\n");
  EXPECT_EQ(describe(MeshShape{.dp = 2, .cp = 2}),
            "mesh: dp 2 x pp 1 x cp 2 x tp 1 = 4 ranks\n"
            "  cp    {0, 1} {2, 3}\n"
            "  dp    {0, 2} {1, 3}\n"
            "  model {0, 1} {2, 3}\n");
  EXPECT_EQ(describe(MeshShape{.dp = 2}), "mesh: dp 2 x pp 1 x tp 1 = 2 ranks\n  dp    {0, 1}\n");
  EXPECT_EQ(describe(MeshShape{}), "mesh: dp 1 x pp 1 x tp 1 = 1 rank\n");
}

TEST(World, OfThreads) {
  run_worlds(3, [](World& world) {
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.local_rank(), world.rank());
    EXPECT_EQ(world.host().group().name, "host");
    world.host().barrier();
  });
}

/// Launchers tell each process how many they started.
TEST(World, ThreadsUnderALauncherOfSeveralProcessesAreRefused) {
  const char* outside = std::getenv("PMI_SIZE");
  std::string before = outside ? outside : "";
  ::setenv("PMI_SIZE", "2", 1);
  test::expect_config_error([] { check_not_launched("plan runs alone"); },
                            {"plan runs alone, but a launcher started 2 processes (PMI_SIZE)"});
  ::setenv("PMI_SIZE", "1", 1);
  check_not_launched("");
  outside ? ::setenv("PMI_SIZE", before.c_str(), 1) : ::unsetenv("PMI_SIZE");
}

/// Under `srun --mpi=none` each task would train alone.
TEST(World, TasksOfSrunThatCannotMeetAreRefused) {
  ::setenv("SLURM_PROCID", "3", 1);
  ::setenv("SLURM_STEP_NUM_TASKS", "1", 1);
  EXPECT_FALSE(launched());  // a shell inside an allocation
  check_announced(1);
  ::setenv("SLURM_STEP_NUM_TASKS", "4", 1);
  EXPECT_FALSE(launched());
  EXPECT_EQ(announced_by_launcher().rank, 3);
  test::expect_config_error([] { check_announced(1); },
                            {"announced 4 ranks (SLURM_STEP_NUM_TASKS), but 1", "--mpi=pmix"});
  ::setenv("PMIX_RANK", "3", 1);
  EXPECT_TRUE(launched());
  for (const char* set : {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "PMIX_RANK"}) ::unsetenv(set);
}

TEST(World, ReportHasTwelveLinesAtMost) {
  std::string many = "first";
  for (int i = 0; i < 20; ++i) many += "\n  line";
  std::string text = failure_report(Error(Exit::config, many));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 12);
  EXPECT_EQ(text.substr(0, 24), "triax: error 78: first\n ");
  EXPECT_EQ(exit_code(std::bad_alloc()), 71);
  EXPECT_EQ(failure_report(std::bad_alloc()), "triax: error 71: out of host memory\n");
  EXPECT_EQ(exit_code(std::runtime_error("x")), 70);
  EXPECT_EQ(failure_report(Error(Exit::internal, "x", "a.cpp:3")),
            "triax: error 70: x\n  at a.cpp:3\n");
}

}  // namespace triax::parallel::mesh_test
