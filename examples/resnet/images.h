#pragma once
#include <array>
#include <memory>
#include <string>

#include "triax/nn/samples.h"

namespace triax::images {

/// An image of CIFAR-10: 32 x 32 pixels, red, green and blue.
inline constexpr int64_t side = 32, channels = 3;
/// A record of its binary format: one byte, the label, then all red, all green and all blue values,
/// row by row.
inline constexpr int64_t record_bytes = 1 + channels * side * side;

struct ImageOptions {
  /// The mean and deviation of each channel's values in [0, 1]. Default: those of CIFAR-10.
  std::array<double, channels> mean = {0.4914, 0.4822, 0.4465}, std = {0.2470, 0.2435, 0.2616};
  int64_t padding = 4;  ///< black pixels around the image from which a random crop is cut; 0: none
  bool flip = true;     ///< mirror left and right with probability 1/2
  uint64_t seed = 1;    ///< the seed of crop and flip
};

/// Normalised images with their labels; the records are held in memory as bytes.
class Images : public nn::Samples {
 public:
  using Records = std::shared_ptr<const std::string>;
  /// The records [begin, end) that are the samples.
  struct Range {
    int64_t begin, end;
  };
  Images(Records records, const Range& range, const ImageOptions& options = {});

  int64_t count() const override { return range_.end - range_.begin; }
  /// Returns input f32 [samples, 32, 32, 3], (value / 255 - mean) / std; target i32 [samples]. A
  /// blank has input 0 and target -1.
  nn::Batch batch(std::span<const int64_t> indices) const override;
  /// Returns a batch with random crop and flip, drawn by (seed, serial number).
  nn::Batch augmented(std::span<const int64_t> indices, int64_t first) const override;
  std::string identity() const override;

 private:
  /// A crop: it begins at (down, right) of the image, each in [-padding, padding], and may be
  /// mirrored.
  struct View {
    int64_t down = 0, right = 0;
    bool mirrored = false;
  };
  View view(int64_t serial) const;
  template <class ViewOf> nn::Batch make(std::span<const int64_t> indices, ViewOf view_of) const;
  void write(float* to, const uint8_t* pixels, const View& view) const;
  const uint8_t* record(int64_t index) const;

  Records records_;
  Range range_;
  ImageOptions options_;
  uint64_t key_;
  std::array<std::array<float, 256>, channels> normalised_;  // each channel's values
};

}  // namespace triax::images
