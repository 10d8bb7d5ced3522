#include "examples/text/text_data.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"

namespace triax::text {

namespace {

constexpr uint64_t largest_file = uint64_t{2} << 30;
constexpr int32_t ignored = -1;

/// In a build directory as in an installation; empty if there is none.
std::string corpus_beside_program() {
  auto program = std::filesystem::read_symlink("/proc/self/exe");
  auto path = program.parent_path().parent_path() / "share/triax/corpus.txt";
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace

int64_t vocabulary(int64_t asked, const Tokenizer& tokenizer) {
  check_input(asked == 0 || asked >= tokenizer.size(), Exit::config,
              "vocab={} is less than the {} characters of the tokenizer\n"
              "  Every character needs a row of the embedding. Valid: {} or more, or leave --vocab "
              "out.",
              asked, tokenizer.size(), tokenizer.size());
  return asked == 0 ? tokenizer.size() : asked;
}

int64_t Windows::count() const {
  int64_t targets = range_.end - range_.begin - 1;  // the first token is no target
  if (range_.stride == 1) return targets - range_.context + 1;
  return (targets + range_.stride - 1) / range_.stride;
}

nn::Batch Windows::batch(std::span<const int64_t> indices) const {
  std::vector<int32_t> input, target;
  for (int64_t index : indices) {
    check(index >= -1 && index < count(), "data: sample {}; expected 0 to {}, or -1 for a blank",
          index, count() - 1);
    for (int64_t i = 0; i < range_.context; ++i) {
      int64_t at = range_.begin + index * range_.stride + i;
      bool inside = index >= 0 && at + 1 < range_.end;
      input.push_back(inside ? (*tokens_)[size_t(at)] : 0);
      target.push_back(inside ? (*tokens_)[size_t(at) + 1] : ignored);
    }
  }
  Shape shape{std::ssize(indices), range_.context};
  return {from_host(input, shape, cpu), from_host(target, shape, cpu)};
}

double Windows::weight(int64_t index) const {
  return double(std::min(range_.context, range_.end - 1 - range_.begin - index * range_.stride));
}

std::string Windows::identity() const {
  auto bytes = size_t(range_.end - range_.begin) * sizeof(int32_t);
  return fmt::format("{} tokens, crc32c {:08x}, vocabulary {}, windows of {} every {}",
                     range_.end - range_.begin, crc32c(tokens_->data() + range_.begin, bytes),
                     vocabulary_, range_.context, range_.stride);
}

TextData::TextData(std::string_view text, const Tokenizer& tokenizer, const Split& split)
    : tokens_(std::make_shared<std::vector<int32_t>>(tokenizer.encode(text))),
      vocabulary_(tokenizer.hash()),
      context_(split.context) {
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

int64_t TextData::val_tokens() const { return std::max<int64_t>(tokens() - train_tokens_ - 1, 0); }

std::shared_ptr<const Windows> TextData::train_samples() const {
  return std::make_shared<Windows>(tokens_, vocabulary_,
                                   Windows::Range{0, train_tokens_, context_});
}

std::shared_ptr<const Windows> TextData::val_samples() const {
  if (val_tokens() == 0) return nullptr;
  return std::make_shared<Windows>(tokens_, vocabulary_,
                                   Windows::Range{train_tokens_, tokens(), context_, context_});
}

double TextData::unigram_entropy() const {
  std::vector<int64_t> counts(1 + size_t(*std::max_element(tokens_->begin(), tokens_->end())));
  for (int32_t token : *tokens_) ++counts[size_t(token)];
  double entropy = 0, total = double(tokens());
  for (int64_t count : counts) {
    double p = double(count) / total;
    if (count > 0) entropy -= p * std::log(p);
  }
  return entropy;
}

parallel::Settings text_settings(TextOptions& o) {
  using parallel::OnResume;
  return parallel::SettingGroup("Data")
      .add("data", "FILE", "text file, UTF-8", &o.data,
           {.shown = "the corpus that comes with triax",
            .on_resume = OnResume::free,
            .derived = true})
      .add("val-fraction", "X", "last part of the text, held out for validation", &o.val_fraction,
           {.range = {0, 1, true}});
}

Text read(const TextOptions& o, int64_t context) {
  std::string path = o.data.empty() ? corpus_beside_program() : o.data;
  check_input(!path.empty(), Exit::config,
              "data is not given\n  There is no ../share/triax/corpus.txt beside this program. Add "
              "--data FILE.");
  std::string text = disk().read(path, largest_file);
  check_input(!text.empty(), Exit::data, "data: {} is empty; expected a text", path);
  auto tokenizer = Tokenizer::from_text(text, "data: " + path);
  TextData data(text, tokenizer,
                {.context = context, .val_fraction = o.val_fraction, .name = path});
  return {std::move(tokenizer), std::move(data), path};
}

parallel::Task Text::task() const {
  return {.samples = data.train_samples(),
          .held_out = data.val_samples(),
          .unit = "tokens",
          .description = fmt::format("{}: {} training tokens, {} held out, {} characters, "
                                     "unigram entropy {:.4f} nats\n",
                                     name, data.train_tokens(), data.val_tokens(), tokenizer.size(),
                                     data.unigram_entropy()),
          .attachments = {{"tokenizer", tokenizer.json()}}};
}

}  // namespace triax::text
