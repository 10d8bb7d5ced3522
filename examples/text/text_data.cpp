#include "examples/text/text_data.h"

#include <algorithm>
#include <utility>

#include "examples/text/token_files.h"
#include "examples/text/tokenizer/bpe.h"
#include "examples/text/tokenizer/numbers.h"
#include "examples/text/tokenizer/tokenizer_files.h"
#include "examples/text/tokenizer/utf8.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/checkpoint/directory.h"

namespace triax::text {

namespace {

constexpr uint64_t largest_file = uint64_t{2} << 30;
constexpr int32_t ignored = -1;

/// Returns the given tokenizer, if it does not have to be made of the text.
std::optional<Tokenizer> given_tokenizer(const TextOptions& o, const TokenizerChoice& choice) {
  if (choice.kind == TokenizerChoice::Kind::files) return read_tokenizer(choice.directory);
  if (!o.tokenizer.empty() || o.initial.empty()) return {};
  return Tokenizer::from_json(o.initial, "checkpoint of --init");
}

/// Returns the directory of the files of the tokenizer that given_tokenizer, or else the data, has.
std::string files_of_tokenizer(const TextOptions& o, const std::string& data) {
  if (!o.tokenizer.empty()) return with_tokenizer_files(tokenizer_choice(o.tokenizer).directory);
  std::string initial = with_tokenizer_files(o.initial_run);
  return initial.empty() ? with_tokenizer_files(data) : initial;
}

Tokenizer tokenizer_of(std::string_view text, const TextOptions& o, const std::string& name) {
  auto choice = tokenizer_choice(o.tokenizer);
  if (auto given = given_tokenizer(o, choice)) return *given;
  check_input(!o.from_checkpoint || !o.tokenizer.empty(), Exit::config,
              "{}: the checkpoint has no tokenizer to read the text with\n  Give that of "
              "its weights (--tokenizer gpt2:DIR), if it is BPE, or tokens for a text.{}",
              name, other_tokenizers);
  if (choice.kind == TokenizerChoice::Kind::characters) return Tokenizer::from_text(text, name);
  size_t end = text.size();
  if (end > learned_from) end = last_character_end(text.substr(0, learned_from));
  return learn_bpe(text.substr(0, end), choice.size, {name});
}

Split split_of(const std::string& path, const TextOptions& o, int64_t context,
               const Tokenizer& tokenizer) {
  return {.context = context,
          .val_fraction = o.val_fraction,
          .name = path,
          .document_end = document_end(o.document_end, tokenizer)};
}

/// The size of the windows, and of the embedding if it is known.
struct Sizes {
  int64_t context, vocab = 0;
};

Text read_tokens(const std::string& path, const TextOptions& o, const Sizes& sizes) {
  TokenSet set = find_tokens(path);
  auto choice = tokenizer_choice(o.tokenizer);
  bool asked = !o.tokenizer.empty();
  check_input(!asked || choice.kind == TokenizerChoice::Kind::files, Exit::config,
              "tokenizer={} with data={}, which are tokens already\n"
              "  Only gpt2:DIR can say what they stand for, where no tokenizer is beside them.",
              o.tokenizer, path);
  if (asked || !set.tokenizer) {
    auto given = given_tokenizer(o, choice);
    check_input(!set.tokenizer || set.tokenizer->hash() == given->hash(), Exit::data,
                "data: {}: its tokens were made with another tokenizer than --tokenizer {}\n"
                "  Leave --tokenizer out.",
                path, o.tokenizer);
    bool known = given && given->has_texts();
    if (known) set.tokenizer = given;
    set.vocabulary = known ? given->size() : given ? std::max(given->size(), sizes.vocab) : 0;
  }
  int64_t largest = 0;
  auto training = map_tokens(set.training, set.vocabulary, largest);
  auto held_out = map_tokens(set.held_out, set.vocabulary, largest);
  int64_t rows = std::max({largest + 1, set.vocabulary, sizes.vocab});
  auto tokenizer = set.tokenizer.value_or(Tokenizer(std::make_shared<Numbers>(rows)));
  Split split = split_of(path, o, sizes.context, tokenizer);
  // Data are the same for models of other sizes.
  auto own = set.tokenizer.value_or(Tokenizer(std::make_shared<Numbers>(largest + 1)));
  TextData data(training, set.held_out.empty() ? nullptr : held_out, own.hash(), split);
  std::string notes = set.roles.empty() ? "" : fmt::format("{}: {}\n", path, set.roles);
  return {.tokenizer = std::move(tokenizer), .data = std::move(data), .name = path, .notes = notes};
}

Text read_source(const std::string& path, const TextOptions& o, const Sizes& sizes) {
  if (holds_tokens(path)) return read_tokens(path, o, sizes);
  uint64_t bytes = disk().open(path).size();
  check_input(bytes <= largest_file, Exit::data,
              "data: {} has {} bytes; expected a text of at most {}\n  Tokenize it first: `minigpt "
              "data {} --tokenizer bpe:N --out DIR`, then --data DIR.",
              path, bytes, largest_file, path);
  std::string text = disk().read(path, largest_file);
  check_input(!text.empty(), Exit::data, "data: {} is empty; expected a text", path);
  auto tokenizer = tokenizer_of(text, o, "data: " + path);
  TextData data(text, tokenizer, split_of(path, o, sizes.context, tokenizer));
  return {.tokenizer = std::move(tokenizer),
          .data = std::move(data),
          .name = path,
          .notes = json_lines_notice(path, text)};
}

Text read_mixture(const std::vector<DataSource>& sources, const TextOptions& o,
                  const Sizes& sizes) {
  std::vector<Text> texts;
  std::vector<Mixture::Part> parts;
  std::vector<std::shared_ptr<const nn::Samples>> held_out;
  std::string lines;
  for (auto& source : sources) {
    texts.push_back(read_source(source.path, o, sizes));
    const Text& text = texts.back();
    check_input(text.tokenizer.hash() == texts[0].tokenizer.hash(), Exit::config,
                "data: {} and {} have different tokenizers, with hashes {} and {}\n  Expected one: "
                "make shards of them with one --tokenizer gpt2:DIR, or train with it.",
                texts[0].name, text.name, texts[0].tokenizer.hash(), text.tokenizer.hash());
    if (auto samples = text.data.train_samples()) parts.push_back({samples, source.share});
    if (auto samples = text.data.val_samples()) held_out.push_back(samples);
    lines += std::exchange(texts.back().notes, {});
    lines += fmt::format("{}: share {:g}, {} training tokens, {} held out\n", text.name,
                         source.share, text.data.train_tokens(), text.data.val_tokens());
  }
  Text all = texts[0];
  if (!parts.empty()) all.mixed = std::make_shared<Mixture>(std::move(parts));
  if (!held_out.empty()) all.held_out = Mixture::joined(held_out);
  all.sources = lines;
  return all;
}

/// Returns a text whose samples are not of its data.
Text text_of(const Tokenizer& tokenizer, int64_t context) {
  TextData data(std::make_shared<Zeros>(context + 1), nullptr, tokenizer.hash(),
                {.context = context});
  return {.tokenizer = tokenizer, .data = data, .name = "zeros"};
}

/// Returns the tokenizer of JSON Lines, which is not made of them.
Tokenizer tokenizer_for(const TextOptions& o, const std::string& path) {
  auto given = given_tokenizer(o, tokenizer_choice(o.tokenizer));
  check_input(given.has_value(), Exit::config,
              "{}: there is no tokenizer\n  Give one (--tokenizer gpt2:DIR), or a checkpoint that "
              "has one.",
              path);
  return *given;
}

Text read_questions(const TextOptions& o, int64_t context) {
  check_input(o.data.empty() && o.chat == Chat::off, Exit::config,
              "choices={} with {}\n  Questions take the place of a text. Leave one out.", o.choices,
              o.data.empty() ? "chat" : "data=" + o.data);
  Tokenizer tokenizer = tokenizer_for(o, o.choices);
  Choices choices = read_choices(o.choices, tokenizer, context);
  Text all = text_of(tokenizer, context);
  all.held_out = choices.samples, all.scores = choices.scores;
  all.sources = fmt::format("{}: {} questions of {} endings\n", o.choices,
                            choices.samples->count() / choices.endings, choices.endings);
  return all;
}

/// Reads conversations, and holds the last ones out.
Text read_chat(const TextOptions& o, const std::string& path, int64_t context) {
  check_input(o.document_end.empty(), Exit::config,
              "document-end with chat\n  Each conversation is a document. Leave one out.");
  Tokenizer tokenizer = tokenizer_for(o, path);
  Text all = text_of(tokenizer, context);
  auto train = read_conversations(path, tokenizer, o.chat, context, all.sources);
  auto count = std::ssize(train), held = int64_t(double(count) * o.val_fraction);
  std::vector<MarkedTokens> last(train.end() - held, train.end());
  train.resize(size_t(count - held));
  all.sources += fmt::format("{}: {} conversations to train on, {} held out\n", path, train.size(),
                             last.size());
  if (!train.empty()) all.mixed = std::make_shared<Marked>(train, context);
  if (!last.empty()) all.held_out = std::make_shared<Marked>(last, context);
  return all;
}

/// Returns zeros for data that are not here, of which nothing is read.
std::optional<Text> blank_text(const TextOptions& o, int64_t context, int64_t vocab) {
  auto is_here = [](auto& source) { return disk().exists(source.path); };
  if (!o.data.empty() && std::ranges::all_of(data_sources(o.data), is_here)) return {};
  (void)tokenizer_choice(o.tokenizer);
  Text all = text_of(Tokenizer(std::make_shared<Numbers>(vocab)), context);
  all.sources = fmt::format("{}: --vocab and --context give all shapes\n",
                            o.data.empty() ? "no data read" : o.data + " is not here");
  return all;
}

/// Samples whose loss in training has smoothed labels.
class Smoothed : public nn::Samples {
 public:
  Smoothed(std::shared_ptr<const nn::Samples> samples, double smoothing)
      : samples_(std::move(samples)), smoothing_(smoothing) {}
  int64_t count() const override { return samples_->count(); }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    return samples_->batch(indices);
  }
  nn::Batch augmented(std::span<const int64_t> indices, int64_t first) const override {
    nn::Batch batch = samples_->augmented(indices, first);
    batch.loss.smoothing = smoothing_;
    return batch;
  }
  double weight(int64_t index) const override { return samples_->weight(index); }
  std::string identity() const override { return samples_->identity(); }

 private:
  std::shared_ptr<const nn::Samples> samples_;
  double smoothing_;
};

}  // namespace

std::function<void(const std::string&, const parallel::CheckpointState&)> initial_tokenizer(
    TextOptions& o) {
  return [&o](auto& path, auto& state) {
    o.from_checkpoint = true;
    o.initial_run = parent_directory(parallel::newest_checkpoint(path));
    if (auto found = state.find("tokenizer"); found != state.end()) o.initial = found->second;
  };
}

int64_t vocabulary(int64_t asked, const Tokenizer& tokenizer) {
  check_input(
      asked == 0 || asked >= tokenizer.size(), Exit::config,
      "vocab={} is less than the {} {} of the tokenizer\n"
      "  Each of them needs a row of the embedding. Valid: {} or more, or leave --vocab out.",
      asked, tokenizer.size(), tokenizer.unit(), tokenizer.size());
  return asked == 0 ? tokenizer.size() : asked;
}

Windows::Windows(TokensPtr tokens, std::string vocabulary, const Range& range)
    : tokens_(std::move(tokens)), vocabulary_(std::move(vocabulary)), range_(range) {
  if (!range.document_end) return;
  int64_t begin = range.begin;
  each_place(*tokens_, {range.begin, range.end}, *range.document_end, [&](int64_t place) {
    add_document(begin, place + 1);
    begin = place + 1;
    ++documents_;
  });
  add_document(begin, range.end);
  check_input(!of_documents_.empty(), Exit::data,
              "data: every document in these {} tokens has fewer than 2; expected a longer one",
              range.end - range.begin);
}

void Windows::add_document(int64_t begin, int64_t end) {
  for (; begin + 1 < end; begin += range_.context)
    of_documents_.push_back({begin, std::min(end, begin + range_.context + 1)});
}

Windows::Window Windows::at(int64_t index) const {
  if (range_.document_end) return of_documents_[size_t(index)];
  int64_t begin = range_.begin + index * range_.stride;
  return {begin, std::min(range_.end, begin + range_.context + 1)};
}

int64_t Windows::count() const {
  if (range_.document_end) return std::ssize(of_documents_);
  int64_t targets = range_.end - range_.begin - 1;  // the first token is no target
  if (range_.stride == 1) return targets - range_.context + 1;
  return (targets + range_.stride - 1) / range_.stride;
}

nn::Batch Windows::batch(std::span<const int64_t> indices) const {
  auto length = size_t(range_.context);
  std::vector<int32_t> input(indices.size() * length, 0), target(input.size(), ignored);
  std::vector<int32_t> window;
  for (size_t k = 0; k < indices.size(); ++k) {
    int64_t index = indices[k];
    check(index >= -1 && index < count(), "data: sample {}; expected 0 to {}, or -1 for a blank",
          index, count() - 1);
    if (index < 0) continue;
    auto [begin, end] = at(index);
    window.resize(size_t(end - begin));
    tokens_->read(begin, window);
    std::copy(window.begin(), window.end() - 1, input.begin() + ptrdiff_t(k * length));
    std::copy(window.begin() + 1, window.end(), target.begin() + ptrdiff_t(k * length));
  }
  Shape shape{std::ssize(indices), range_.context};
  return {from_host(input, shape, cpu), from_host(target, shape, cpu)};
}

double Windows::weight(int64_t index) const {
  auto [begin, end] = at(index);
  return double(end - 1 - begin);
}

std::string Windows::identity() const {
  std::string where = range_.document_end
                          ? fmt::format("in documents that end with {}", *range_.document_end)
                          : fmt::format("every {}", range_.stride);
  return fmt::format("{} tokens, crc32c {:08x}, vocabulary {}, windows of {} {}",
                     range_.end - range_.begin, checksum(*tokens_, range_.begin, range_.end),
                     vocabulary_, range_.context, where);
}

TextData::TextData(std::string_view text, const Tokenizer& tokenizer, const Split& split)
    : TextData(std::make_shared<TokensInMemory>(tokenizer.encode(text, {"data: " + split.name})),
               nullptr, tokenizer.hash(), split) {}

TextData::TextData(TokensPtr tokens, TokensPtr held_out, std::string vocabulary, const Split& split)
    : tokens_(std::move(tokens)),
      held_out_(std::move(held_out)),
      vocabulary_(std::move(vocabulary)),
      train_tokens_(tokens_->size()),
      context_(split.context),
      document_end_(split.document_end) {
  if (!held_out_) train_tokens_ -= int64_t(double(train_tokens_) * split.val_fraction);
  int64_t all = this->tokens(), left = all - train_tokens_;
  check(context_ >= 1 && split.val_fraction >= 0 && split.val_fraction <= 1,
        "data: context {}, val_fraction {}; expected at least 1, and 0 to 1", context_,
        split.val_fraction);
  check_input(train_tokens_ > context_ || split.val_fraction == 1, Exit::data,
              "data: {}: {} of its {} tokens are to train on, too few for a window; context {} "
              "needs {}\n  Take more data, or a smaller --context.",
              split.name, train_tokens_, all, context_, context_ + 1);
  check_input((!held_out_ && split.val_fraction == 0) || left >= 2, Exit::data,
              "data: {}: {} of its {} tokens are held out, too few to validate on; expected 2 or "
              "more, or --val-fraction 0",
              split.name, left, all);
}

std::shared_ptr<const Windows> TextData::train_samples() const {
  if (train_tokens_ <= context_) return nullptr;  // all is held out
  auto all = std::make_shared<Windows>(
      tokens_, vocabulary_, Windows::Range{0, train_tokens_, context_, 1, document_end_});
  check_input(!document_end_ || all->documents() > 0, Exit::data,
              "data: none of the {} tokens to train on is {}; expected the one that ends every "
              "document (--document-end)\n  Give the token that ends documents in this data, or "
              "leave the flag out.",
              train_tokens_, document_end_.value_or(0));
  return all;
}

std::shared_ptr<const Windows> TextData::val_samples() const {
  if (val_tokens() == 0) return nullptr;
  int64_t begin = held_out_ ? 0 : train_tokens_;
  auto tokens = held_out_ ? held_out_ : tokens_;
  return std::make_shared<Windows>(
      tokens, vocabulary_,
      Windows::Range{begin, tokens->size(), context_, context_, document_end_});
}

parallel::Settings text_settings(TextOptions& o) {
  using parallel::OnResume;
  return parallel::SettingGroup("Data")
      .add("data|dataset|data-path|data-dir", "PATH",
           "text file, UTF-8, or tokens: a directory that `data` made, or .bin files; several with "
           "their shares: A:0.7,B:0.3",
           &o.data,
           {.shown = "the corpus that comes with triax",
            .on_resume = OnResume::free,
            .derived = true})
      .add("tokenizer|tokenize", "char|gpt2:DIR|bpe:N",
           "characters, BPE from the files in DIR, or N byte-level tokens learned from the "
           "text",
           &o.tokenizer,
           {.shown = "char, or that of the tokens or of --init",
            .on_resume = OnResume::free,
            .derived = true})
      .add("val-fraction", "X", "last part of the text, held out for validation", &o.val_fraction,
           {.range = {0, 1}})
      .add("document-end", "TOKEN",
           "the token, or its number, that ends each document, such as \"<|endoftext|>\" or 50256: "
           "no sequence then "
           "has tokens of two documents",
           &o.document_end, {.shown = "none: sequences cross documents"})
      .add("chat|chat-template", "off|plain|chatml|llama3",
           "--data has a conversation a line, as JSON, whose answers alone are trained on, in this "
           "form; plain: {\"prompt\": .., \"completion\": ..} as they are",
           parallel::choice(o.chat, {{"off", Chat::off},
                                     {"plain", Chat::plain},
                                     {"chatml", Chat::chatml},
                                     {"llama3", Chat::llama3}}))
      .add("label-smoothing|label-smoothing-factor", "X",
           "share of each target that is spread evenly over the vocabulary; in the loss of steps, "
           "not of validations",
           &o.label_smoothing, {.range = {0, 1, true}, .on_resume = OnResume::say});
}

parallel::Settings evaluate_settings(TextOptions& o) {
  return parallel::SettingGroup("Evaluation")
      .add("choices|tasks", "FILE",
           "questions with endings to choose from, in place of --data: JSON Lines as HellaSwag's, "
           "{\"ctx\": .., \"endings\": [..], \"label\": N}",
           &o.choices, {.shown = "none"});
}

std::optional<int32_t> document_end(const std::string& asked, const Tokenizer& tokenizer) {
  if (asked.empty()) return {};
  int32_t number = -1;
  if (parse_number(asked, number) && number >= 0 && number < tokenizer.size()) return number;
  auto token = tokenizer.token(asked);
  check_input(token.has_value(), Exit::config,
              "document-end=`{}` is no token\n  Expected one, such as <|endoftext|>, or a number "
              "below {}.",
              printable(asked), tokenizer.size());
  return token;
}

TokenizerChoice tokenizer_choice(const std::string& asked) {
  using enum TokenizerChoice::Kind;
  if (asked.empty() || asked == "char") return {};
  if (asked.starts_with("gpt2:") && asked.size() > 5) return {files, asked.substr(5)};
  TokenizerChoice choice{.kind = learned};
  if (asked.starts_with("bpe:") && parse_number(asked.substr(4), choice.size) &&
      choice.size >= least_bpe && choice.size <= most_bpe)
    return choice;
  fail(Exit::config,
       "tokenizer=`{}`\n  Valid: char, gpt2:DIR for the directory of vocab.json and merges.txt or "
       "of tokenizer.json, bpe:N for {} to {} tokens learned from the text.",
       printable(asked), least_bpe, most_bpe);
}

Text read(const TextOptions& o, int64_t context, int64_t vocab) {
  if (o.shapes_only && vocab > 0)
    if (auto blank = blank_text(o, context, vocab)) return *blank;
  if (!o.choices.empty()) return read_questions(o, context);
  std::string path = o.data.empty() ? shipped_file("corpus.txt") : o.data;
  check_input(!path.empty(), Exit::config,
              "data is not given\n  There is no ../share/triax/corpus.txt beside this program. Add "
              "--data FILE.");
  auto sources = data_sources(path);
  Text text = o.chat != Chat::off   ? read_chat(o, path, context)
              : sources.size() == 1 ? read_source(sources[0].path, o, {context, vocab})
                                    : read_mixture(sources, o, {context, vocab});
  text.tokenizer_files = files_of_tokenizer(o, sources[0].path);
  text.label_smoothing = o.label_smoothing;
  return text;
}

parallel::Task Text::task() const {
  parallel::Task made{.unit = "tokens", .attachments = {{"tokenizer", tokenizer.json()}}};
  made.alike = [](auto& a, auto& b) {
    auto saved = Tokenizer::from_json(a, "checkpoint"), here = Tokenizer::from_json(b, "data");
    return saved.hash() == here.hash() || !(saved.has_texts() || here.has_texts());
  };
  made.accompany = [from = tokenizer_files](auto& run) { keep_tokenizer_files(from, run, disk()); };
  made.samples = mixed, made.held_out = held_out, made.scores = scores;
  if (!mixed && !held_out) made.samples = data.train_samples(), made.held_out = data.val_samples();
  if (label_smoothing > 0 && made.samples)
    made.samples = std::make_shared<Smoothed>(made.samples, label_smoothing);
  if (!sources.empty()) {
    made.description = sources + fmt::format("{} {}\n", tokenizer.size(), tokenizer.unit());
    return made;
  }
  made.description =
      notes +
      fmt::format("{}: {} training tokens, {} held out, {} {}, unigram entropy {:.4f} nats\n", name,
                  data.train_tokens(), data.val_tokens(), tokenizer.size(), tokenizer.unit(),
                  data.unigram_entropy());
  return made;
}

}  // namespace triax::text
