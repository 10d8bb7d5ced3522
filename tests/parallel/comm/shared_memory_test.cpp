#include "triax/parallel/comm/processes/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>

namespace triax::parallel::shared_memory_test {

constexpr size_t bytes = size_t{8} << 20;

/// Two segments as one process would see them.
struct SharedMemoryTest : testing::Test {
  SharedMemoryTest() {
    std::vector<Segment> all;
    for (int i = 0; i < 2; ++i) {
      all.push_back(Segment::create(bytes));
      segments.push_back(all.back().data());
    }
    memory = std::make_shared<SharedMemory>(std::move(all), 1);
  }
  std::vector<std::byte*> segments;
  std::shared_ptr<SharedMemory> memory;
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

/// A process that makes a segment, writes 7 into it and waits to be killed.
struct Owner {
  Owner() {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("no pipe");
    process = fork();
    if (process == 0) {
      Segment mine = Segment::create(bytes);
      mine.data()[bytes - 1] = std::byte{7};
      handle = mine.handle();
      if (write(ends[1], &handle, sizeof handle) == sizeof handle) pause();
      _exit(1);
    }
    if (read(ends[0], &handle, sizeof handle) != sizeof handle) throw std::runtime_error("silence");
    close(ends[0]);
    close(ends[1]);
  }
  ~Owner() { end(); }
  Owner(const Owner&) = delete;
  void end() {
    if (process <= 0) return;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    process = 0;
  }
  Segment::Handle handle;
  pid_t process = 0;
};

TEST(Segment, OutlivesItsOwnerInWhoeverMapsItAndNowhereElse) {
  Owner owner;
  Segment peer = Segment::open(owner.handle, bytes);
  ASSERT_TRUE(peer.usable());
  EXPECT_EQ(peer.data()[bytes - 1], std::byte{7});
  owner.end();
  EXPECT_EQ(peer.data()[bytes - 1], std::byte{7});
  EXPECT_FALSE(Segment::open(owner.handle, bytes).usable());
  EXPECT_TRUE(Segment::open(peer.handle(), bytes).usable());
  auto handle = peer.handle();
  peer.close();
  EXPECT_FALSE(Segment::open(handle, bytes).usable());
}

TEST(Segment, TakesNothingElseForIt) {
  Owner owner;
  Segment other = Segment::create(bytes);
  Segment::Handle wrong = owner.handle;
  wrong.inode = other.handle().inode;
  EXPECT_FALSE(Segment::open(wrong, bytes).usable());
  EXPECT_FALSE(Segment::open({}, bytes).usable());
}

/// Where the host gives shared memory huge pages on demand, a segment has them: it begins at one.
TEST(Segment, BeginsAtAHugePageAndAsksForThem) {
  Segment mine = Segment::create(bytes);
  auto begin = reinterpret_cast<uintptr_t>(mine.data());
  EXPECT_EQ(begin % (size_t{2} << 20), 0u);
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/shmem_enabled")) GTEST_SKIP();
  std::ifstream maps("/proc/self/smaps");
  std::string line, flags;
  while (std::getline(maps, line) && line.find("/memfd:triax") == line.npos) {
  }
  while (std::getline(maps, flags) && !flags.starts_with("VmFlags")) {
  }
  EXPECT_NE(flags.find(" hg"), flags.npos) << line << flags;
}

/// The kernel shows a file that has no name as deleted.
TEST(Segment, HasNoNameInAnyFileSystem) {
  Segment mine = Segment::create(bytes);
  std::ifstream maps("/proc/self/maps");
  int seen = 0;
  for (std::string line; std::getline(maps, line);)
    if (line.find("rw-s") != line.npos) {
      EXPECT_NE(line.find("/memfd:triax (deleted)"), line.npos) << line;
      ++seen;
    }
  EXPECT_EQ(seen, 1);
}

}  // namespace triax::parallel::shared_memory_test
