#include "core/cuda/emulation.h"

#include <gtest/gtest.h>

#include "core/cuda/launch.h"
#include "core/cuda/reduce_block.h"
#include "tests/cuda/emulated.h"
#include "tests/support/expect_error.h"

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
  launch({}, {2}, Neighbour<waits>{y.data<int>()});
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
