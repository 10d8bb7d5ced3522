// A communicator of a program's own, around that of all ranks.
#include "triax/parallel/comm/wrapper_comm.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/mesh.h"

namespace triax::parallel::wrapper_comm_test {

/// Counts what it hands on.
class Counting final : public WrapperComm {
 public:
  Counting(std::unique_ptr<Communicator> inner, int& count)
      : WrapperComm(std::move(inner)), count_(count) {}
  const char* transport() const override { return "counting"; }

 private:
  Work start(Transfer t) override {
    if (t.call.kind != Call::split) ++count_;
    return start_inner(std::move(t));
  }
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) override {
    return std::make_unique<Counting>(split_inner(std::move(group), number, color), count_);
  }
  int& count_;
};

WorldOptions counting(int& count) {
  WorldOptions o;
  o.wrap = [&](auto world) { return std::make_unique<Counting>(std::move(world), count); };
  return o;
}

TEST(WrapperComm, GetsTheTransfersOfAMeshButNotOfTheHostPlane) {
  run_thread_ranks(4, [](std::unique_ptr<Communicator> comm) {
    int count = 0;
    World world(std::move(comm), 1, counting(count));
    Mesh mesh(world.comm(), {.dp = 2, .tp = 2});
    EXPECT_STREQ(mesh.tp().transport(), "counting");
    Tensor x = full({3}, world.rank() + 1, f32, cpu);
    mesh.tp().all_reduce(x).wait();
    EXPECT_EQ(x.to_host<float>()[0], world.rank() < 2 ? 3 : 7);
    mesh.world().all_reduce(x).wait();
    EXPECT_EQ(x.to_host<float>()[0], 20);
    EXPECT_EQ(count, 2);
    world.host().all_reduce(x).wait();
    EXPECT_EQ(count, 2);
    EXPECT_EQ(mesh.world().ledger()[Call::all_reduce].calls, 1);
  });
}

TEST(WrapperComm, IsNeeded) {
  WorldOptions o;
  o.wrap = [](auto) { return nullptr; };
  test::expect_error([&] { World world(single_rank(), 1, o); }, {"wrap: null"});
}

TEST(WrapperComm, StandsOnWhatItWasGiven) {
  int count = 0;
  auto alone = single_rank();
  Communicator* inner = alone.get();
  auto twice =
      std::make_unique<Counting>(std::make_unique<Counting>(std::move(alone), count), count);
  EXPECT_EQ(WrapperComm::innermost(std::move(twice)).get(), inner);
}

}  // namespace triax::parallel::wrapper_comm_test
