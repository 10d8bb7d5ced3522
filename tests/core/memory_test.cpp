#include "triax/core/memory.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "tests/support/expect_error.h"
#include "triax/core/backend.h"
#include "triax/core/error.h"

namespace triax {
namespace {

// A counter of its own for the test, so that other tests' tensors do not matter.
class Memory : public testing::Test {
 protected:
  Memory() { memory::set_counter(counter); }
  ~Memory() override { memory::set_counter(outer); }
  std::shared_ptr<memory::Counter> outer = memory::counter();
  std::shared_ptr<memory::Counter> counter = std::make_shared<memory::Counter>();
};

TEST_F(Memory, CountsKindsAndPeaks) {
  Tensor a = empty({10}, f32, cpu);
  {
    memory::Scope scope(memory::optimizer);
    Tensor b = empty({100}, f64, cpu);
    EXPECT_EQ(memory::current_kind(), memory::optimizer);
    EXPECT_EQ(counter->live(memory::optimizer), 800);
    EXPECT_EQ(counter->live(), 840);
  }
  EXPECT_EQ(memory::current_kind(), memory::activations);
  EXPECT_EQ(counter->live(), 40);
  EXPECT_EQ(counter->peak(), 840);
  EXPECT_EQ(counter->peak(memory::optimizer), 800);
  counter->reset_peaks();
  EXPECT_EQ(counter->peak(), 40);
  EXPECT_EQ(counter->peak(memory::optimizer), 0);
}

TEST_F(Memory, ReleasedStorageComesBackUnderTheSameIdentity) {
  Tensor x = empty({1000}, f32, cpu), view = x.narrow(0, 10, 5);
  x.storage()->release();
  EXPECT_FALSE(x.storage()->present());
  EXPECT_EQ(counter->live(), 0);
  x.storage()->release();  // nothing
  EXPECT_EQ(counter->live(), 0);
  test::expect_error([&] { view.data(); }, {"4000 bytes on cpu used while released"});
  x.storage()->restore();
  x.storage()->restore();  // nothing
  EXPECT_EQ(counter->live(), 4000);
  fill_(x, 3);
  EXPECT_EQ(view.data<float>()[4], 3.f);
}

TEST_F(Memory, TakeMovesTheBytes) {
  Tensor x = full({100}, 7, f32, cpu);
  void* bytes = x.data();
  std::shared_ptr<Storage> taken = x.storage()->take();
  EXPECT_EQ(taken->data(), bytes);
  EXPECT_EQ(taken->bytes(), 400u);
  EXPECT_FALSE(x.storage()->present());
  EXPECT_EQ(counter->live(), 400);
  x.storage()->restore();
  EXPECT_NE(x.data(), bytes);
  EXPECT_EQ(counter->live(), 800);
  taken.reset();
  EXPECT_EQ(counter->live(), 400);
  x.storage()->release();
  EXPECT_THROW(x.storage()->take(), Error);
}

TEST(CachingAllocator, AlignsAndReuses) {
  auto cache = backend(cpu).allocator();
  for (size_t bytes : {1, 64, 65, 1000, 4097, 100000, 200000, 5000000}) {
    void* a = cache->allocate(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(a) % 64, 0u);
    std::memset(a, 1, bytes);
    void* other = cache->allocate(bytes);
    EXPECT_NE(a, other);
    cache->deallocate(a, bytes);
    EXPECT_EQ(cache->allocate(bytes), a);  // also for a size of the same class
    cache->deallocate(a, bytes);
    cache->deallocate(other, bytes);
  }
  trim_memory();
}

TEST(CachingAllocator, BlocksFreedElsewhereReturnToTheirOwner) {
  Tensor x = empty({12345}, f32, cpu);
  void* bytes = x.data();
  std::thread([&x] {
    Tensor mine = std::move(x);
    EXPECT_NE(backend(cpu).allocator(), nullptr);
  }).join();
  EXPECT_FALSE(x.defined());
  EXPECT_EQ(empty({12345}, f32, cpu).data(), bytes);
}

TEST(CachingAllocator, BlocksOutliveTheThreadThatMadeThem) {
  Tensor x;
  std::thread([&x] { x = full({300000}, 5, f32, cpu); }).join();
  EXPECT_EQ(x.data<float>()[299999], 5.f);
}

/// Near a limit (ulimit -d) there is room for a block, if not for those that would follow it.
TEST(CachingAllocator, ABlockFitsUnderALimit) {
  std::thread([] {  // whose cache is empty
    int64_t pages = 0;
    std::ifstream sizes("/proc/self/statm");
    for (int field = 0; field < 6; ++field) sizes >> pages;  // the sixth: data and stack
    rlimit before{}, limit{};
    ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
    limit = before, limit.rlim_cur = rlim_t(pages) * 4096 + (rlim_t{40} << 20);
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    EXPECT_NO_THROW({
      for (float value : {1.f, 2.f})
        EXPECT_EQ(full({4 << 20}, value, f32, cpu).data<float>()[0], value);
    });
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  })
      .join();
}

TEST(CachingAllocator, OutOfMemoryIsAnErrorOfItsOwn) {
  test::expect_error([] { backend(cpu).allocator()->allocate(size_t{1} << 60); }, {"memory: no "},
                     Exit::memory);
}

}  // namespace
}  // namespace triax
