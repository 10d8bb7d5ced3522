#include "triax/core/cuda/runtime/emulation.h"

#include <gtest/gtest.h>

#include "tests/cuda/emulated.h"
#include "tests/cuda/emulation/races.h"
#include "tests/support/expect_error.h"
#include "triax/core/cuda/kernels/reduce_block.h"
#include "triax/core/cuda/runtime/launch.h"

namespace triax::test {
namespace {

using namespace cuda::emulated;

// Each thread reads its neighbour's number.
template <bool waits> struct Neighbour {
  static constexpr int threads = 64;
  struct Shared {
    int of[threads];
  };
  int* y;
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    shared.of[t.id] = int(t.global());
    if (waits) t.sync();
    y[t.global()] = shared.of[(t.id + 1) % threads];
  }
};

template <bool waits> Tensors neighbours() {
  Tensor y = zeros({128}, i32, cpu);
  try {
    launch({}, {waits ? 2 : 1}, Neighbour<waits>{y.data<int>()});
  } catch (const Error&) {
    EXPECT_FALSE(waits);  // a race, said after the block
  }
  return {y};
}

TEST(CudaEmulation, OrdersAgreeOnAKernelThatWaits) {
  Tensor y = in_any_order(neighbours<true>)[0];
  for (int i = 0; i < 128; ++i) EXPECT_EQ(y.data<int>()[i], i / 64 * 64 + (i + 1) % 64);
}

TEST(CudaEmulation, OrdersDifferWhereASyncIsMissing) {
  cuda::emulation::set_order(cuda::emulation::Order::forward);
  Tensor first = neighbours<false>()[0];
  EXPECT_EQ(first.data<int>()[0], -1);  // shared memory holds rubbish
  cuda::emulation::set_order(cuda::emulation::Order::reversed);
  EXPECT_FALSE(same_bits(first, neighbours<false>()[0]));
  cuda::emulation::set_order(cuda::emulation::Order::forward);
}

// What a byte of shared memory may see between two waits.
enum class Use { all_write, next_reads, warp_reads, shuffles, halves, writes_again };
template <Use use, bool waits> struct Sharing {
  static constexpr int threads = 64;
  struct Shared {
    int of[threads];
    short halves[threads];
    int flag;
  };
  int* y;
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    shared.of[t.id] = 1;
    if (use == Use::all_write) {
      if (t.id == 0 || !waits) shared.flag = 1;  // the same, whoever is the last
    } else if (use == Use::next_reads) {
      if (waits) t.sync();
      y[t.id] = shared.of[(t.id + 1) % threads];
    } else if (use == Use::warp_reads) {
      if (waits) t.sync_warp();
      y[t.id] = shared.of[t.id ^ 1];
    } else if (use == Use::shuffles) {
      int other = t.shuffle_xor(t.id, 1);
      if (waits) t.sync_warp();
      y[t.id] = shared.of[other];
    } else if (use == Use::halves) {
      shared.halves[t.id] = 1;  // neighbours in one word
      if (!waits) shared.halves[t.id ^ 1] = 1;
    } else {
      t.sync();
      y[t.id] = shared.of[63 - t.id];
      if (waits) t.sync();
      shared.of[t.id] = 1;
    }
  }
};

template <Use use> void expect_race_without_wait(const char* text) {
  using cuda::emulation::Order;
  Tensor y = zeros({64}, i32, cpu);
  cuda::emulation::set_order(Order::reversed);
  launch({}, {3}, Sharing<use, true>{y.data<int>()});
  expect_error([&] { launch({}, {3}, Sharing<use, false>{y.data<int>()}); },
               {"cuda emulation: thread ", text, "expected a sync()"});
  cuda::emulation::set_order(Order::forward);
}

TEST(CudaEmulation, FindsRacesThatLeaveTheBitsAsTheyAre) {
  if (!cuda::emulation::finds_races()) GTEST_SKIP() << "compiled by clang or for a sanitizer";
  expect_race_without_wait<Use::all_write>("writes byte 384 of shared memory and thread");
  expect_race_without_wait<Use::next_reads>("of shared memory and thread");
  expect_race_without_wait<Use::warp_reads>("sync() or sync_warp()");
  expect_race_without_wait<Use::shuffles>("sync() or sync_warp()");
  expect_race_without_wait<Use::halves>("sync() or sync_warp()");
  expect_race_without_wait<Use::writes_again>("of shared memory and thread");
}

struct SumOfIds {
  static constexpr int threads = 96;
  struct Shared {
    Partials<float> partials;
  };
  float* y;
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    y[t.id] = reduce_block(t, float(t.id), Sum{}, shared.partials);
  }
};

TEST(CudaEmulation, ABlockReduces) {
  Tensor y = in_any_order([] {
    Tensor out = zeros({96}, f32, cpu);
    launch({}, {}, SumOfIds{out.data<float>()});
    return Tensors{out};
  })[0];
  for (int i = 0; i < 96; ++i) EXPECT_EQ(y.data<float>()[i], 95 * 96 / 2);
}

enum class Fault { leaves, other_line, half_a_warp, misaligned };
template <Fault fault> struct Faulty {
  static constexpr int threads = 64;
  TRIAX_HD void operator()(const Thread& t) const {
    if constexpr (fault == Fault::leaves) {
      if (t.id == 40) return;
      t.sync();
    } else if constexpr (fault == Fault::other_line) {
      if (t.id < 32) t.sync();
      else t.sync();
    } else if constexpr (fault == Fault::half_a_warp) {
      if (t.id < 16) t.shuffle_xor(t.id, 1);
      t.sync();
    } else {
      cuda::emulation::require_aligned(reinterpret_cast<const void*>(uintptr_t(8)), 16);
    }
  }
};

TEST(CudaEmulation, SaysWhatWouldHang) {
  expect_error([] { launch({}, {}, Faulty<Fault::leaves>{}); },
               {"thread 0 waits for its block", "thread 40 has left the kernel"});
  expect_error([] { launch({}, {}, Faulty<Fault::other_line>{}); },
               {"thread 0 waits for its block", "thread 32 waits for its block at line"});
  expect_error([] { launch({}, {}, Faulty<Fault::half_a_warp>{}); },
               {"thread 0 waits for its warp", "thread 16 waits for its block"});
  expect_error([] { launch({}, {}, Faulty<Fault::misaligned>{}); },
               {"16 bytes at 0x8", "multiple of 16"});
  expect_error([] { launch({}, {0}, SumOfIds{}); }, {"a grid of 0 x 1 x 1"});
}

}  // namespace
}  // namespace triax::test
