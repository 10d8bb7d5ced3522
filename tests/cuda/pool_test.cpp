#include "triax/core/cuda/runtime/pool.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/expect_error.h"

namespace triax::test {
namespace {

// A device of `room` bytes; what happens on it is written down.
class FakeDevice final : public cuda::BlockSource {
 public:
  struct Log {
    size_t room = 1 << 20;
    std::unordered_map<void*, size_t> live = {};
    int allocated = 0, freed = 0, waited = 0;
    bool ready = true;  // is every mark reached?
  };
  explicit FakeDevice(Log& log) : log_(log) {}
  void* allocate(size_t bytes) override {
    size_t used = 0;
    for (auto& [data, size] : log_.live) used += size;
    if (used + bytes > log_.room) return nullptr;
    void* data = ::operator new(bytes);
    log_.live[data] = bytes;
    ++log_.allocated;
    return data;
  }
  void free(void* data) noexcept override {
    log_.live.erase(data);
    ::operator delete(data);
    ++log_.freed;
  }
  std::shared_ptr<void> mark() noexcept override {
    return std::this_thread::get_id() == owner_ ? nullptr : std::make_shared<int>(1);
  }
  void wait_for(const std::shared_ptr<void>&) override { ++log_.waited; }
  bool ready(const std::shared_ptr<void>&) const override { return log_.ready; }
  const char* where() const override { return "the fake"; }

 private:
  Log& log_;
  std::thread::id owner_ = std::this_thread::get_id();
};

TEST(CudaPool, ASteadyStepAllocatesNothing) {
  FakeDevice::Log log;
  {
    cuda::Pool pool(std::make_unique<FakeDevice>(log));
    for (int step = 0; step < 3; ++step) {
      void *a = pool.allocate(1000), *b = pool.allocate(100000);
      EXPECT_NE(a, b);
      pool.deallocate(a, 1000);
      pool.deallocate(b, 100000);
      EXPECT_EQ(log.allocated, 2);
    }
    EXPECT_GE(pool.unused(), 101000u);
    EXPECT_EQ(log.waited, 0);
    pool.trim();
    EXPECT_EQ(pool.unused(), 0u);
    EXPECT_EQ(log.freed, 2);
    pool.deallocate(pool.allocate(1), 1);
  }
  EXPECT_TRUE(log.live.empty());
}

TEST(CudaPool, ABlockFreedOnAnotherThreadIsWaitedFor) {
  FakeDevice::Log log;
  cuda::Pool pool(std::make_unique<FakeDevice>(log));
  void* a = pool.allocate(4096);
  std::thread([&] { pool.deallocate(a, 4096); }).join();
  EXPECT_EQ(log.waited, 0);
  EXPECT_EQ(pool.allocate(4096), a);
  EXPECT_EQ(log.waited, 1);
  pool.deallocate(a, 4096);
  EXPECT_EQ(pool.allocate(4096), a);
  EXPECT_EQ(log.waited, 1);
  pool.deallocate(a, 4096);
}

TEST(CudaPool, ABlockThatIsNotReadyStaysWhereItIs) {
  FakeDevice::Log log;
  cuda::Pool pool(std::make_unique<FakeDevice>(log));
  void* a = pool.allocate(4096);
  std::thread([&] { pool.deallocate(a, 4096); }).join();
  log.ready = false;
  void* b = pool.allocate(4096);
  EXPECT_NE(a, b);
  log.ready = true;
  EXPECT_EQ(pool.allocate(4096), a);
  pool.deallocate(a, 4096);
  pool.deallocate(b, 4096);
}

TEST(CudaPool, GivesUpUnusedBlocksBeforeItSaysThatMemoryIsOut) {
  FakeDevice::Log log;
  cuda::Pool pool(std::make_unique<FakeDevice>(log));
  pool.deallocate(pool.allocate(800000), 800000);
  void* a = pool.allocate(600000);  // fits only without the unused block
  EXPECT_EQ(log.freed, 1);
  memory::counter()->add(memory::optimizer, 600000);
  expect_error([&] { pool.allocate(600000); },
               {"memory: no ", "left on the fake", "optimizer", "600000 bytes"}, Exit::memory);
  memory::counter()->add(memory::optimizer, -600000);
  pool.deallocate(a, 600000);
}

}  // namespace
}  // namespace triax::test
