#include "parallel/comm/processes/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>

namespace triax::parallel {
namespace {

constexpr size_t bytes = size_t{8} << 20;

/// Two segments as one process would see them.
struct SharedMemoryTest : testing::Test {
  static std::byte* map() {
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return static_cast<std::byte*>(data);
  }
  ~SharedMemoryTest() override {
    for (auto* s : segments) munmap(s, bytes);
  }
  std::vector<std::byte*> segments{map(), map()};
  std::shared_ptr<SharedMemory> memory = std::make_shared<SharedMemory>(segments, bytes, 1);
};

TEST_F(SharedMemoryTest, HandsOutMySegment) {
  auto* a = static_cast<std::byte*>(memory->allocate(1000));
  auto* b = static_cast<std::byte*>(memory->allocate(3 << 20));
  ASSERT_TRUE(a && b);
  std::memset(a, 1, 1000);
  std::memset(b, 2, 3 << 20);
  EXPECT_EQ(a[999], std::byte{1});
  EXPECT_EQ(memory->find(a).segment, 1);
  EXPECT_EQ(memory->at(memory->find(b + 5)), b + 5);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b) % 64, 0u);
  EXPECT_EQ(memory->find(segments[0] + 7).segment, 0);
  int elsewhere = 0;
  EXPECT_EQ(memory->find(&elsewhere).segment, -1);
  EXPECT_EQ(b - a, 1024);
}

TEST_F(SharedMemoryTest, FreedBlocksJoinAgain) {
  std::vector<void*> blocks;
  while (void* p = memory->allocate(1 << 20)) blocks.push_back(p);
  EXPECT_EQ(blocks.size(), 8u);
  for (size_t i : {0, 2, 4, 6, 1, 5, 3, 7}) memory->deallocate(blocks[i], 1 << 20);
  void* all = memory->allocate(bytes);
  EXPECT_EQ(all, segments[1]);
  EXPECT_EQ(memory->allocate(1), nullptr);
}

TEST_F(SharedMemoryTest, TensorsThatDoNotFitComeFromTheCpu) {
  auto allocator = shared_allocator(memory);
  void* large = allocator->allocate(2 * bytes);
  void* small = allocator->allocate(100);
  EXPECT_EQ(memory->find(large).segment, -1);
  EXPECT_EQ(memory->find(small).segment, 1);
  allocator->deallocate(large, 2 * bytes);
  allocator->deallocate(small, 100);
  EXPECT_EQ(memory->allocate(bytes), segments[1]) << "all is free again";
}

/// A page that the host cannot give is noticed before anybody touches it.
TEST_F(SharedMemoryTest, PagesThatDoNotExistAreNotHandedOut) {
  munmap(segments[1] + bytes / 2, bytes / 2);
  EXPECT_NE(memory->allocate(1 << 20), nullptr);
  EXPECT_EQ(memory->allocate(bytes / 2), nullptr);
}

}  // namespace
}  // namespace triax::parallel
