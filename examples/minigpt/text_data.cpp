#include "examples/minigpt/text_data.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"

namespace triax::minigpt {

namespace {

constexpr uint64_t largest_file = uint64_t{2} << 30;
constexpr int32_t ignored = -1;

// Windows side by side, as ops take them.
struct Rows {
  std::vector<int32_t> ids, targets;
  nn::Batch batch(int64_t time) const {
    Shape shape{static_cast<int64_t>(ids.size())};
    return {from_host(ids, shape, cpu), from_host(targets, shape, cpu), time};
  }
};

}  // namespace

std::string read_text(const std::string& path) {
  std::string text = disk().read(path, largest_file);
  check_input(!text.empty(), Exit::data, "data: {} is empty; expected a text", path);
  return text;
}

int64_t vocabulary(int64_t asked, const Tokenizer& tokenizer) {
  check_input(asked == 0 || asked >= tokenizer.size(), Exit::config,
              "vocab={} is less than the {} characters of the tokenizer\n"
              "  Every character needs a row of the embedding. Valid: {} or more, or leave --vocab "
              "out.",
              asked, tokenizer.size(), tokenizer.size());
  return asked == 0 ? tokenizer.size() : asked;
}

TextData::TextData(std::string_view text, const Tokenizer& tokenizer, const Split& split)
    : tokens_(tokenizer.encode(text)), context_(split.context) {
  check(context_ >= 1 && split.val_fraction >= 0 && split.val_fraction < 1,
        "data: context {}, val_fraction {}; expected at least 1, and [0, 1)", context_,
        split.val_fraction);
  auto held_out = static_cast<int64_t>(static_cast<double>(tokens()) * split.val_fraction);
  train_tokens_ = tokens() - held_out;
  check_input(train_tokens_ > context_, Exit::data,
              "data: {}: {} of its {} tokens are to train on, too few for a window; context {} "
              "needs {}",
              split.name, train_tokens_, tokens(), context_, context_ + 1);
  check_input(split.val_fraction == 0 || held_out >= 2, Exit::data,
              "data: {}: {} of its {} tokens are held out, too few to validate on; expected 2 or "
              "more, or --val-fraction 0",
              split.name, held_out, tokens());
}

nn::Batch TextData::batch(std::span<const int64_t> samples) const {
  Rows rows;
  for (int64_t sample : samples) {
    check(sample >= 0 && sample < this->samples(), "data: sample {}; expected 0 to {}", sample,
          this->samples() - 1);
    auto start = tokens_.begin() + sample;
    rows.ids.insert(rows.ids.end(), start, start + context_);
    rows.targets.insert(rows.targets.end(), start + 1, start + 1 + context_);
  }
  return rows.batch(context_);
}

int64_t TextData::val_tokens() const { return std::max<int64_t>(tokens() - train_tokens_ - 1, 0); }

int64_t TextData::val_windows() const { return (val_tokens() + context_ - 1) / context_; }

nn::Batch TextData::val_batch(int64_t first, int64_t count) const {
  check(first >= 0 && count >= 1,
        "data: validation windows from {}, {} of them; expected 0 or "
        "more, and at least 1",
        first, count);
  Rows rows;
  for (int64_t i = first * context_; i < (first + count) * context_; ++i) {
    bool inside = i < val_tokens();
    auto at = static_cast<size_t>(train_tokens_ + i);
    rows.ids.push_back(inside ? tokens_[at] : 0);
    rows.targets.push_back(inside ? tokens_[at + 1] : ignored);
  }
  return rows.batch(context_);
}

std::string TextData::hash() const {
  size_t bytes = static_cast<size_t>(train_tokens_) * sizeof tokens_[0];
  return fmt::format("{:08x}", crc32c(tokens_.data(), bytes));
}

double TextData::unigram_entropy() const {
  std::vector<int64_t> counts(
      1 + static_cast<size_t>(*std::max_element(tokens_.begin(), tokens_.end())));
  for (int32_t token : tokens_) ++counts[static_cast<size_t>(token)];
  double entropy = 0, total = static_cast<double>(tokens());
  for (int64_t count : counts) {
    double p = static_cast<double>(count) / total;
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

}  // namespace triax::minigpt
