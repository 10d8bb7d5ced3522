// Which samples a rank gets: those of a step are the same on any mesh, in the same order.
#include "triax/parallel/train/model/feed.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <set>

#include "tests/parallel/train/numbers.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "triax/core/check.h"

namespace triax::parallel::feed_test {

using namespace test;
using Indices = std::vector<int64_t>;

constexpr int64_t count = 29, global_batch = 12;
constexpr uint64_t seed = 7;

Feed feed(const Feed::Place& place, int64_t n = count) {
  return Feed(std::make_shared<Numbers>(n), seed, place);
}

/// The samples of a step over all replicas and micro-batches, where they stand in the order.
Indices of_step(int64_t step, int64_t micro_batch, int replicas) {
  Indices all(global_batch, -1);
  for (int r = 0; r < replicas; ++r) {
    Feed mine = feed({micro_batch, global_batch, r, replicas});
    for (int64_t m = 0; m < mine.place().micros(); ++m) {
      nn::Batch b = mine.at(step, m);
      auto at = b.first - (step - 1) * global_batch;
      for (int64_t i : numbers(b)) all.at(size_t(at++)) = i;
    }
  }
  return all;
}

TEST(FeedTest, AStepHasTheSameSamplesOnAnyMesh) {
  Sampler order(count, seed);
  for (int64_t step : {1, 2, 3, 100}) {
    Indices expected;
    for (int64_t i = 0; i < global_batch; ++i)
      expected.push_back(order.at((step - 1) * global_batch + i));
    for (int replicas : {1, 2, 3, 4})
      for (int64_t micro_batch : {1, 3, 6, 12}) {
        if (global_batch % (micro_batch * replicas) != 0) continue;
        EXPECT_EQ(of_step(step, micro_batch, replicas), expected)
            << "step " << step << ", " << replicas << " replicas, micro-batch " << micro_batch;
      }
  }
}

/// Numbers whose training samples hold their serial number as target.
struct Augmented : Numbers {
  using Numbers::Numbers;
  nn::Batch augmented(std::span<const int64_t> indices, int64_t first) const override {
    Indices serials(indices.size());
    std::iota(serials.begin(), serials.end(), first);
    return {.input = batch(indices).input,
            .target = from_host(serials, {std::ssize(serials)}, cpu)};
  }
};

TEST(FeedTest, AugmentationIsTheSameOnAnyMesh) {
  Sampler order(count, seed);
  auto samples = std::make_shared<Augmented>(count);
  for (int64_t step : {1, 4})  // of the first epoch and of the second
    for (Feed::Place place : {Feed::Place{8, 8}, {1, 8, 0, 8}, {2, 8, 0, 4}, {1, 8, 0, 4}, {2, 8}})
      for (; place.replica < place.replicas; ++place.replica) {
        Feed mine(samples, seed, place);
        for (int64_t m = 0; m < place.micros(); ++m) {
          SCOPED_TRACE(fmt::format("step {}, micro-batch {} of {}, replica {} of {}", step, m,
                                   place.micros(), place.replica, place.replicas));
          nn::Batch b = mine.at(step, m);
          Indices indices = numbers(b), serials = b.target.to_host<int64_t>();
          int64_t stands =
              (step - 1) * 8 + (m * place.replicas + place.replica) * place.micro_batch;
          for (size_t k = 0; k < indices.size(); ++k, ++stands) {
            EXPECT_EQ(serials[k], stands);
            EXPECT_EQ(indices[k], order.at(stands));
          }
        }
      }
}

TEST(FeedTest, ValidationIsNotAugmented) {
  Feed feed(std::make_shared<Augmented>(3), seed, {.micro_batch = 4, .global_batch = 4});
  EXPECT_EQ(feed.in_order(0).target.to_host<int64_t>(), (Indices{0, 10, 20, -1}));
}

TEST(FeedTest, MicroBatchesAreCutOverReplicasInside) {
  Feed second = feed({.micro_batch = 2, .global_batch = 12, .replica = 1, .replicas = 3});
  EXPECT_EQ(second.place().micros(), 2);
  EXPECT_EQ(second.at(1, 0).first, 2);
  EXPECT_EQ(second.at(1, 1).first, 8);
  EXPECT_EQ(second.at(3, 1).first, 24 + 8);
  auto b = second.at(1, 1);
  Sampler order(count, seed);
  EXPECT_EQ(numbers(b), (Indices{order.at(8), order.at(9)}));
  EXPECT_EQ(b.target.to_host<int64_t>(), (Indices{10 * order.at(8), 10 * order.at(9)}));
}

TEST(FeedTest, WeightsAreThoseOfAllReplicas) {
  double expected = 0;
  for (int64_t i : of_step(3, 12, 1)) expected += double(i + 1);
  EXPECT_EQ(feed({.micro_batch = 3, .global_batch = 12, .replica = 1, .replicas = 2}).weight(3),
            expected);
  struct Weightless : Numbers {
    using Numbers::Numbers;
    double weight(int64_t) const override { return 0; }
  };
  Feed none(std::make_shared<Weightless>(4), seed, {.micro_batch = 2, .global_batch = 2});
  expect_data_error([&] { none.weight(5); },
                    {"samples: no target of step 5 counts: its 2 samples have weight 0",
                     "Leave samples without targets out of the data, or raise --global-batch"});
}

TEST(FeedTest, WhatSamplesThrowSaysWhereAndOtherWeightsAreRefused) {
  struct Broken : Numbers {
    using Numbers::Numbers;
    nn::Batch batch(std::span<const int64_t>) const override {
      throw std::runtime_error("my file broke");
    }
    double weight(int64_t i) const override {
      if (i >= 0) throw std::runtime_error("my file broke");
      return 1;
    }
  };
  Feed::Place place{.micro_batch = 9, .global_batch = 9};
  Feed broken(std::make_shared<Broken>(3), seed, place);
  expect_error([&] { broken.at(3, 0); },
               {"samples: batch of step 3, indices ", ", ..: my file broke"});
  expect_error([&] { broken.in_order(0); },
               {"samples: batch of validation, indices 0, 1, 2, -1, -1, -1, -1, -1, ..: my file"});
  expect_error([&] { broken.weight_in_order(); }, {"samples: weight of sample 0: my file broke"});
  struct Weighs : Numbers {
    using Numbers::Numbers;
    double weight(int64_t) const override { return weighs; }
    double weighs = -1;
  };
  auto samples = std::make_shared<Weighs>(1);
  Feed one(samples, seed, {});
  for (double bad : {-1., double(NAN), double(INFINITY)}) {
    samples->weighs = bad;
    expect_data_error([&] { one.weight(1); }, {"samples: weight of sample 0: it is ", "0 or more"});
  }
}

// Every sample once and in order; the last micro-batches are filled up with blanks.
TEST(FeedTest, InOrderCoversAllSamplesOnce) {
  for (int replicas : {1, 2, 3})
    for (int64_t n : {1, 5, 12, 13}) {
      Indices seen;
      int64_t micros = 0;
      for (int r = 0; r < replicas; ++r) {
        Feed mine = feed({.micro_batch = 4, .replica = r, .replicas = replicas}, n);
        micros = mine.micros_in_order();
        EXPECT_EQ(micros, (n + 4 * replicas - 1) / (4 * replicas));
        EXPECT_EQ(mine.weight_in_order(), double(n * (n + 1) / 2));
        for (int64_t m = 0; m < micros; ++m) {
          nn::Batch b = mine.in_order(m);
          EXPECT_EQ(b.first, nn::evaluation);
          ASSERT_EQ(numbers(b).size(), 4u);
          for (int64_t i : numbers(b)) seen.push_back(i);
        }
      }
      auto blanks = std::erase(seen, -1);
      EXPECT_EQ(int64_t(blanks), 4 * replicas * micros - n);
      ASSERT_EQ(int64_t(seen.size()), n);
      std::set<int64_t> different(seen.begin(), seen.end());
      EXPECT_EQ(int64_t(different.size()), n);
      EXPECT_EQ(*different.begin(), 0);
      EXPECT_EQ(*different.rbegin(), n - 1);
    }
  Feed last = feed({.micro_batch = 4, .replica = 1, .replicas = 2}, 6);
  EXPECT_EQ(numbers(last.in_order(0)), (Indices{4, 5, -1, -1}));
}

TEST(FeedTest, HeldOutSamplesThatCountNothingAreRefused) {
  auto nothing =
      std::make_shared<nn::TensorSamples>(zeros({2, 1}, f32, cpu), full({2}, -1, i32, cpu));
  Feed feed(nothing, 0, {.micro_batch = 2, .global_batch = 2});
  expect_data_error([&] { feed.weight_in_order(); }, {"no held-out target counts"});
}

TEST(FeedTest, ABatchOfAnotherSizeIsRefused) {
  struct OneMore : Numbers {
    using Numbers::Numbers;
    nn::Batch batch(std::span<const int64_t> indices) const override {
      nn::Batch b = Numbers::batch(indices);
      b.target = zeros({b.target.size(0) + 1}, DType::i64, cpu);
      return b;
    }
  };
  struct WithoutTarget : Numbers {
    using Numbers::Numbers;
    nn::Batch batch(std::span<const int64_t> indices) const override {
      return {.input = Numbers::batch(indices).input};
    }
  };
  Feed::Place place{.micro_batch = 3, .global_batch = 3};
  Feed more(std::make_shared<OneMore>(5), seed, place);
  expect_data_error([&] { more.at(1, 0); },
                    {"samples: batch of step 1, indices ", ": a batch of 3 has input", "target [4]",
                     "expected dim 0 of each"});
  expect_data_error([&] { more.in_order(0); }, {"target [4]"});
  Feed none(std::make_shared<WithoutTarget>(5), seed, place);
  expect_data_error([&] { none.at(1, 0); }, {"and target an undefined tensor"});
}

// Batches made ahead by any number of threads are those of the feed, in whatever order they are
// asked for.

constexpr Feed::Place place{.micro_batch = 2, .global_batch = 6};  // 3 micro-batches in a step

/// Samples that take time, more or less of it, and count how often they were asked for.
struct Slow : Numbers {
  using Numbers::Numbers;
  nn::Batch batch(std::span<const int64_t> indices) const override {
    ++asked;
    std::this_thread::sleep_for(std::chrono::microseconds(200 * (indices[0] % 5)));
    return Numbers::batch(indices);
  }
  mutable std::atomic<int> asked = 0;
};

void expect_same(const nn::Batch& got, const nn::Batch& expected) {
  EXPECT_EQ(numbers(got), numbers(expected));
  EXPECT_EQ(got.target.to_host<int64_t>(), expected.target.to_host<int64_t>());
  EXPECT_EQ(got.first, expected.first);
}

/// Step and micro-batch.
using Asked = std::vector<std::pair<int64_t, int64_t>>;

void expect_batches(const Asked& order) {
  auto samples = std::make_shared<Slow>(31);
  Feed feed(samples, 5, place);
  for (int workers : {0, 1, 2, 3, 8}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    Loader loader(feed, workers);
    for (auto [step, micro] : order) {
      SCOPED_TRACE(testing::Message() << "step " << step << ", micro-batch " << micro);
      expect_same(loader.at(step, micro), feed.at(step, micro));
    }
  }
}

TEST(LoaderTest, AnyNumberOfWorkersGivesTheSameBatches) {
  Asked order;
  for (int64_t step = 1; step <= 20; ++step)
    for (int64_t micro = 0; micro < place.micros(); ++micro) order.push_back({step, micro});
  expect_batches(order);
}

TEST(LoaderTest, MayBeAskedForAnyBatchInAnyOrder) {
  expect_batches({{7, 0}, {7, 1}, {7, 2}, {8, 0}});                          // starts in the middle
  expect_batches({{1, 0}, {1, 1}, {1000, 2}, {1000, 0}, {1001, 0}});         // jumps ahead
  expect_batches({{9, 0}, {9, 1}, {3, 2}, {4, 0}, {4, 1}, {1, 0}, {1, 1}});  // and back
  expect_batches({{2, 0}, {2, 2}, {3, 1}, {4, 0}, {4, 2}});                  // leaves some out
}

// A trace of an overflow reads the step again; a pipeline's stages read in an order of their own.
TEST(LoaderTest, ReadsBatchesOfAStepAgain) {
  Asked order;
  for (int64_t step = 1; step <= 6; ++step)
    for (int64_t micro : {0, 1, 0, 2, 1, 1, 0, 2}) order.push_back({step, micro});
  expect_batches(order);
  expect_batches({{5, 2}, {5, 0}, {5, 2}, {5, 1}, {4, 2}, {5, 2}, {4, 2}, {5, 0}});
}

// Ahead: `workers` and two more.
TEST(LoaderTest, MakesEachBatchOnceAndNotTooManyAhead) {
  auto samples = std::make_shared<Slow>(31);
  Feed feed(samples, 5, place);
  Loader loader(feed, 2);
  for (int64_t step = 1; step <= 10; ++step)
    for (int64_t turn = 0; turn < 2; ++turn)
      for (int64_t micro = 0; micro < place.micros(); ++micro) loader.at(step, micro);
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (samples->asked < 30 + 4 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(samples->asked, 30 + 4);
}

/// Fails where sample 13 is among them.
struct Failing : Numbers {
  using Numbers::Numbers;
  nn::Batch batch(std::span<const int64_t> indices) const override {
    for (int64_t i : indices) check_input(i != 13, Exit::data, "planted: sample 13");
    return Numbers::batch(indices);
  }
};

TEST(LoaderTest, WhatSamplesThrowArrivesWithItsBatch) {
  Feed feed(std::make_shared<Failing>(31), 5, place);
  for (int workers : {0, 1, 4}) {
    SCOPED_TRACE(testing::Message() << workers << " workers");
    Loader loader(feed, workers);
    int failed = 0;
    for (int64_t step = 1; step <= 10; ++step)
      for (int64_t micro = 0; micro < place.micros(); ++micro) {
        nn::Batch expected;
        bool fails = false;
        try {
          expected = feed.at(step, micro);
        } catch (const Error&) {
          fails = true;
        }
        failed += fails;
        auto ask = [&] { return loader.at(step, micro); };
        if (!fails) {
          expect_same(ask(), expected);
          continue;
        }
        for (int again = 0; again < 2; ++again)
          expect_data_error(ask, {"samples: batch of step ", "13", ": planted: sample 13"});
      }
    EXPECT_EQ(failed, 2);  // once in each of two epochs
  }
}

TEST(LoaderTest, MayGoWhileItsWorkersAreBusy) {
  auto samples = std::make_shared<Slow>(31);
  Feed feed(samples, 5, place);
  for (int i = 0; i < 30; ++i) {
    Loader loader(feed, 1 + i % 4);
    if (i % 3 > 0) loader.at(1 + i, 0);
    if (i % 3 > 1) loader.at(2, 1);
  }
  int asked = samples->asked;
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(samples->asked, asked) << "a worker is still at work";
}

// Its bytes are the rank's: the counter goes down again when batches are forgotten.
TEST(LoaderTest, CountsTheMemoryOfItsRank) {
  Feed feed(std::make_shared<Numbers>(31), 5, place);
  int64_t before = memory::counter()->live();
  {
    Loader loader(feed, 2);
    nn::Batch b = loader.at(1, 0);
    EXPECT_GE(memory::counter()->live() - before, 2 * 2 * 8);
  }
  EXPECT_EQ(memory::counter()->live(), before);
}

}  // namespace triax::parallel::feed_test
