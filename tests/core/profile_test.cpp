#include "core/profile.h"

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

}  // namespace
}  // namespace triax
