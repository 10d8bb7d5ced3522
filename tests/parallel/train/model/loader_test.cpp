// Batches made ahead by any number of threads are those of the feed, in whatever order they are
// asked for.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/check.h"
#include "parallel/train/model/feed.h"
#include "tests/parallel/train/numbers.h"
#include "tests/support/expect_error.h"

namespace triax::parallel {
namespace {

using namespace test;

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

}  // namespace
}  // namespace triax::parallel
