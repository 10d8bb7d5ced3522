#include "examples/resnet/images.h"

#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/random.h"

namespace triax::images {

Images::Images(Records records, const Range& range, const ImageOptions& options)
    : records_(std::move(records)),
      range_(range),
      options_(options),
      key_(random::key(options.seed, "augmentation")) {
  int64_t held = std::ssize(*records_) / record_bytes;
  check(0 <= range_.begin && range_.begin <= range_.end && range_.end <= held,
        "images: records {} to {}; expected a range of the {} in memory", range_.begin, range_.end,
        held);
  check(0 <= options_.padding && options_.padding < side, "images: padding {}; expected 0 to {}",
        options_.padding, side - 1);
  for (size_t c = 0; c < channels; ++c)
    for (size_t value = 0; value < 256; ++value)
      normalised_[c][value] = float((double(value) / 255 - options_.mean[c]) / options_.std[c]);
}

const uint8_t* Images::record(int64_t index) const {
  check(index >= 0 && index < count(), "images: index {}; expected 0 to {}, or -1 for a blank",
        index, count() - 1);
  return reinterpret_cast<const uint8_t*>(records_->data()) + (range_.begin + index) * record_bytes;
}

Images::View Images::view(int64_t serial) const {
  random::Words drawn = random::philox(key_, uint64_t(serial), 0);
  auto shift = [&](uint32_t word) {  // [-padding, padding]
    return int64_t(uint64_t(word) * uint64_t(2 * options_.padding + 1) >> 32) - options_.padding;
  };
  return {shift(drawn.x), shift(drawn.y), options_.flip && drawn.z >> 31 == 1};
}

// Writes to `to` [32, 32, 3] from `pixels` [3, 32, 32].
void Images::write(float* to, const uint8_t* pixels, const View& view) const {
  auto inside = [](int64_t at) { return at >= 0 && at < side; };
  for (int64_t y = 0; y < side; ++y)
    for (int64_t x = 0; x < side; ++x) {
      int64_t row = y + view.down, column = (view.mirrored ? side - 1 - x : x) + view.right;
      const uint8_t* pixel = inside(row) && inside(column) ? pixels + row * side + column : nullptr;
      for (size_t c = 0; c < channels; ++c)
        *to++ = normalised_[c][pixel ? pixel[c * side * side] : 0];
    }
}

template <class ViewOf>
nn::Batch Images::make(std::span<const int64_t> indices, ViewOf view_of) const {
  int64_t n = std::ssize(indices), each = side * side * channels;
  nn::Batch made{empty({n, side, side, channels}, f32, cpu), empty({n}, i32, cpu)};
  for (int64_t k = 0; k < n; ++k) {
    float* input = made.input.data<float>() + k * each;
    int32_t& target = made.target.data<int32_t>()[k];
    int64_t index = indices[size_t(k)];
    if (index == -1) {
      std::fill_n(input, each, 0.f);
      target = -1;
    } else {
      const uint8_t* bytes = record(index);
      write(input, bytes + 1, view_of(k));
      target = bytes[0];
    }
  }
  return made;
}

nn::Batch Images::batch(std::span<const int64_t> indices) const {
  return make(indices, [](int64_t) { return View{}; });
}

nn::Batch Images::augmented(std::span<const int64_t> indices, int64_t first) const {
  return make(indices, [&](int64_t k) { return view(first + k); });
}

std::string Images::identity() const {
  return fmt::format(
      "{} images, crc32c {:08x}, mean {}, std {}, padding {}, flip {}, seed {}", count(),
      crc32c(records_->data() + range_.begin * record_bytes, size_t(count() * record_bytes)),
      join(options_.mean, " "), join(options_.std, " "), options_.padding, options_.flip,
      options_.seed);
}

}  // namespace triax::images
