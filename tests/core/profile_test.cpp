#include "triax/core/profile.h"

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <thread>

namespace triax {
namespace {

/// Of this thread, while it lives.
struct Profiling : Profile {
  Profiling() { set_profile(this); }
};

void nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

std::vector<std::string> names(const Profile& p) {
  std::vector<std::string> all;
  for (auto& s : p.slices()) all.push_back(s.name);
  return all;
}

TEST(Profile, OfAnotherThreadOrNoneRecordsNothing) {
  { ProfileRange unseen("unseen"); }
  std::optional<Profiling> p(std::in_place);
  std::thread([] { ProfileRange elsewhere("elsewhere"); }).join();
  { ProfileRange seen("seen"); }
  EXPECT_EQ(names(*p), std::vector<std::string>{"seen"});
  std::optional<ProfileRange> late(std::in_place, "late");
  p.reset();
  EXPECT_EQ(profile(), nullptr);
  late.reset();  // ends after its profile
}

TEST(Profile, TimeCountsInTheInnermostSlice) {
  Profiling p;
  {
    ProfileRange action("F0", Activity::action);
    nap();
    ProfileRange waits("wait", Activity::waiting);
    nap();
    nap();
  }
  p.settle();
  auto& slices = p.slices();
  ASSERT_EQ(names(p), (std::vector<std::string>{"wait", "F0"}));
  int64_t inner = slices[0].end - slices[0].begin, outer = slices[1].end - slices[1].begin;
  EXPECT_LE(slices[1].begin, slices[0].begin);
  EXPECT_LE(slices[0].end, slices[1].end);
  EXPECT_EQ(p.spent()[size_t(Activity::waiting)], inner);
  EXPECT_EQ(p.spent()[size_t(Activity::action)], outer - inner);
  EXPECT_GE(inner, 4000000);
  EXPECT_GE(outer - inner, 2000000);
}

// Backward comes to a layer once for each of its ops, and recomputes it within them.
TEST(Profile, ALayerThatGoesOnIsOneSlice) {
  Profiling p;
  p.open("B0", Activity::action);
  const char *block = "block", *head = "head";
  EXPECT_EQ(profiled_layer(), nullptr);
  { ProfileRange op("cross_entropy", head); }
  {
    ProfileRange op("recompute", block);
    EXPECT_EQ(profiled_layer(), block);
    ProfileRange again("block", Activity::layer);
    ProfileRange nested("matmul", block);
  }
  { ProfileRange call("all_reduce", Activity::communication); }
  { ProfileRange op("matmul", block); }
  { ProfileRange op("identity", nullptr); }  // of no layer
  p.close();
  EXPECT_EQ(names(p), (std::vector<std::string>{"head", "block", "all_reduce", "B0"}));
  EXPECT_GE(p.slices()[1].end, p.slices()[2].end);
}

/// The first mark is reached at 1000 nanoseconds, each other one 10 later than the one before.
struct LateClock final : ProfileClock {
  int64_t made = 0;
  int64_t mark() override { return made++; }
  int64_t time(int64_t mark) override { return 1000 + 10 * mark; }
};

TEST(Profile, OfADeviceHasTheTimesThatItsClockTellsInTheEnd) {
  Profile p(std::make_unique<LateClock>());
  p.open("step", Activity::work);             // 1000
  p.open("block", Activity::layer);           // 1010
  size_t seen = p.start({.name = "sum"});     // 1020
  size_t unseen = p.start({.name = "send"});  // 1030
  p.open("wait", Activity::waiting);          // 1040
  p.close();                                  // 1050
  p.finish(seen);                             // 1060
  p.close();                                  // 1070
  p.close("step 1");                          // 1080
  p.open("step", Activity::work);             // 1090: goes on, with what is in it
  p.open("wait", Activity::waiting);
  p.close();
  p.settle();
  auto& steps = p.slices()[2];
  EXPECT_EQ(steps.name, "step 1");
  EXPECT_EQ(steps.begin, 1000);
  EXPECT_EQ(steps.end, 1080);
  EXPECT_EQ(p.operations()[seen].begin, 1020);
  EXPECT_EQ(p.operations()[seen].end, 1060);
  EXPECT_EQ(p.operations()[unseen].end, 1030);
  EXPECT_EQ(p.spent()[size_t(Activity::waiting)], 10);
  EXPECT_EQ(p.spent()[size_t(Activity::layer)], 50);
  EXPECT_EQ(p.spent()[size_t(Activity::work)], 20);
}

}  // namespace
}  // namespace triax
