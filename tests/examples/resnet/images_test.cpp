// Images of CIFAR-10's binary format: what a batch holds, how it is augmented, what is refused.
#include "examples/resnet/images.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "tests/support/expect_error.h"
#include "triax/core/check.h"

namespace triax::images::images_test {

using namespace test;
using Indices = std::vector<int64_t>;
using Floats = std::vector<float>;

constexpr ImageOptions plain{.mean = {0, 0, 0}, .std = {1, 1, 1}};

/// A value that a pixel has; never 0, which only the padding has.
uint8_t value(int64_t image, int64_t channel, int64_t y, int64_t x) {
  return uint8_t(1 + (image * 31 + channel * 89 + y * 32 + x * 7) % 255);
}

/// Image i has class (3 * i) % 10.
std::string made(int64_t images) {
  std::string bytes;
  for (int64_t i = 0; i < images; ++i) {
    bytes += char(3 * i % 10);
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t y = 0; y < side; ++y)
        for (int64_t x = 0; x < side; ++x) bytes += char(value(i, c, y, x));
  }
  return bytes;
}

Images images(const std::string& records, const ImageOptions& options = plain) {
  return {std::make_shared<std::string>(records), {0, std::ssize(records) / record_bytes}, options};
}

/// Image n of the batch, [32, 32, 3].
const float* image(const nn::Batch& b, int64_t n) {
  return b.input.data<float>() + n * side * side * channels;
}
float at(const float* image, int64_t y, int64_t x, int64_t c) {
  return image[(y * side + x) * channels + c];
}

TEST(Images, AreChannelsLastAndNormalised) {
  ImageOptions o;
  Images two = images(made(2), o);
  nn::Batch b = two.batch(Indices{1, 0});
  EXPECT_EQ(b.input.shape(), Shape({2, 32, 32, 3}));
  EXPECT_EQ(b.input.dtype(), f32);
  EXPECT_EQ(b.target.to_host<int32_t>(), (std::vector<int32_t>{3, 0}));
  for (int64_t n : {0, 1})
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x)
        for (int64_t c = 0; c < channels; ++c)
          ASSERT_NEAR(at(image(b, n), y, x, c),
                      (value(1 - n, c, y, x) / 255. - o.mean[size_t(c)]) / o.std[size_t(c)], 1e-6);
}

// (255 / 255 - 0.4914) / 0.2470 and so on: CIFAR-10's statistics are the default.
TEST(Images, AreNormalisedAsCifar10) {
  std::string white(record_bytes, '\xFF');
  white[0] = 7;
  nn::Batch b = images(white, {}).batch(Indices{0});
  EXPECT_EQ(b.target.item(), 7);
  EXPECT_NEAR(at(image(b, 0), 31, 31, 0), 2.059109, 1e-5);
  EXPECT_NEAR(at(image(b, 0), 31, 31, 1), 2.126489, 1e-5);
  EXPECT_NEAR(at(image(b, 0), 31, 31, 2), 2.115826, 1e-5);
}

TEST(Images, ABlankIsZeroAndCountsNothing) {
  Images one = images(made(1), {});
  for (const nn::Batch& b : {one.batch(Indices{-1, 0}), one.augmented(Indices{-1, 0}, 5)}) {
    EXPECT_EQ(b.target.to_host<int32_t>(), (std::vector<int32_t>{-1, 0}));
    for (int64_t i = 0; i < side * side * channels; ++i) ASSERT_EQ(image(b, 0)[i], 0);
  }
}

TEST(Images, ARangeBeginsWithItsFirstRecord) {
  auto records = std::make_shared<std::string>(made(5));
  Images part(records, {2, 4}, plain);
  EXPECT_EQ(part.count(), 2);
  EXPECT_EQ(part.batch(Indices{0, 1}).target.to_host<int32_t>(), (std::vector<int32_t>{6, 9}));
  for (int64_t outside : {-2, 2})
    expect_error([&] { part.batch(Indices{outside}); },
                 {fmt::format("images: index {}; expected 0 to 1, or -1", outside)});
  auto too_many = [&] { return Images(records, {2, 6}); };
  expect_error(too_many, {"images: records 2 to 6; expected a range of the 5"});
  expect_error([&] { images(made(1), {.padding = 32}); }, {"images: padding 32; expected 0 to 31"});
}

/// How image 0 was moved and whether it was mirrored: all views that its pixels fit.
struct Seen {
  int64_t down, right;
  bool mirrored;
  auto operator<=>(const Seen&) const = default;
};
std::vector<Seen> views_that_fit(const float* seen) {
  std::vector<Seen> fitting;
  for (int64_t down = -4; down <= 4; ++down)
    for (int64_t right = -4; right <= 4; ++right)
      for (bool mirrored : {false, true}) {
        bool fits = true;
        for (int64_t y = 0; y < side && fits; ++y)
          for (int64_t x = 0; x < side && fits; ++x) {
            int64_t row = y + down, column = (mirrored ? side - 1 - x : x) + right;
            bool black = row < 0 || row >= side || column < 0 || column >= side;
            for (int64_t c = 0; c < channels; ++c)
              fits &= at(seen, y, x, c) == (black ? 0 : float(value(0, c, row, column) / 255.));
          }
        if (fits) fitting.push_back({down, right, mirrored});
      }
  return fitting;
}

TEST(Images, CropsShiftByUpToFourPixelsAndHalfAreMirrored) {
  constexpr int64_t count = 500;
  nn::Batch b = images(made(1)).augmented(Indices(count, 0), 0);
  std::map<int64_t, int> down, right;
  std::set<Seen> different;
  int mirrored = 0;
  for (int64_t n = 0; n < count; ++n) {
    auto seen = views_that_fit(image(b, n));
    ASSERT_EQ(seen.size(), 1u) << "sample " << n;
    ++down[seen[0].down], ++right[seen[0].right], mirrored += seen[0].mirrored;
    different.insert(seen[0]);
  }
  for (auto* shifts : {&down, &right}) {
    EXPECT_EQ(shifts->size(), 9u);
    for (auto [shift, times] : *shifts) EXPECT_NEAR(times, 56, 35) << shift;  // 5 deviations
  }
  EXPECT_NEAR(mirrored, 250, 56);
  EXPECT_GT(different.size(), 140u) << "of 9 * 9 * 2: one does not follow from the other";
}

// As in PyTorch, where the padding is normalised with the image.
TEST(Images, CropsArePaddedWithBlack) {
  std::string white(record_bytes, '\xFF');
  nn::Batch b = images(white, {}).augmented(Indices(20, 0), 0);
  std::set<float> green;
  for (int64_t n = 0; n < 20; ++n)
    for (int64_t y = 0; y < side; ++y)
      for (int64_t x = 0; x < side; ++x) green.insert(at(image(b, n), y, x, 1));
  ASSERT_EQ(green.size(), 2u);
  EXPECT_NEAR(*green.begin(), -1.980295, 1e-5);
  EXPECT_NEAR(*green.rbegin(), 2.126489, 1e-5);
}

TEST(Images, AugmentationIsAFunctionOfTheSerialNumber) {
  Images all = images(made(6));
  auto input = [](const nn::Batch& b) { return b.input.to_host<float>(); };
  Indices indices{4, 1, 5, 0};
  Floats whole = input(all.augmented(indices, 10)), parts;
  for (int64_t k = 0; k < 4; ++k) {
    Floats part = input(all.augmented(Indices{indices[size_t(k)]}, 10 + k));
    parts.insert(parts.end(), part.begin(), part.end());
  }
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(input(images(made(6)).augmented(indices, 10)), whole);
  EXPECT_NE(input(all.augmented(indices, 10 + 6)), whole) << "the next epoch has the same crops";
  ImageOptions other = plain;
  other.seed = 2;
  EXPECT_NE(input(images(made(6), other).augmented(indices, 10)), whole);
}

TEST(Images, CropAndFlipCanBeOff) {
  Indices indices(40, 0);
  ImageOptions o = plain;
  o.padding = 0;
  nn::Batch b = images(made(1), o).augmented(indices, 0);
  std::set<Seen> seen;
  for (int64_t n = 0; n < 40; ++n) seen.insert(views_that_fit(image(b, n)).at(0));
  EXPECT_EQ(seen, (std::set<Seen>{{0, 0, false}, {0, 0, true}}));
  o.flip = false;
  EXPECT_EQ(images(made(1), o).augmented(indices, 0).input.to_host<float>(),
            images(made(1), o).batch(indices).input.to_host<float>());
  o.padding = 4;
  b = images(made(1), o).augmented(indices, 0);
  for (int64_t n = 0; n < 40; ++n) EXPECT_FALSE(views_that_fit(image(b, n)).at(0).mirrored);
}

// A resumed run must be told that its data is another.
TEST(Images, KnowThemselvesFromOtherData) {
  std::string mine = images(made(3)).identity(), other = made(3);
  EXPECT_EQ(images(made(3)).identity(), mine);
  other[size_t(2 * record_bytes + 1000)] ^= 1;
  EXPECT_NE(images(other).identity(), mine);
  EXPECT_NE(images(made(2)).identity(), mine);
  auto records = std::make_shared<std::string>(made(4));
  EXPECT_NE(Images(records, {1, 4}, plain).identity(), mine);
  EXPECT_EQ(Images(records, {0, 3}, plain).identity(), mine);
  auto with = [&](auto change) {
    ImageOptions o = plain;
    change(o);
    return images(made(3), o).identity();
  };
  EXPECT_NE(with([](auto& o) { o.mean[1] = 0.1; }), mine);
  EXPECT_NE(with([](auto& o) { o.std[2] = 0.1; }), mine);
  EXPECT_NE(with([](auto& o) { o.padding = 3; }), mine);
  EXPECT_NE(with([](auto& o) { o.flip = false; }), mine);
  EXPECT_NE(with([](auto& o) { o.seed = 2; }), mine);
}

}  // namespace triax::images::images_test
