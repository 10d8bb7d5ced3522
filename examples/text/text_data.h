#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/text/marked.h"
#include "examples/text/mixture.h"
#include "examples/text/tokenizer/tokenizer.h"
#include "examples/text/tokens.h"
#include "triax/nn/samples.h"
#include "triax/parallel/checkpoint/manifest.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/train/model/task.h"

namespace triax::text {

/// Returns the number of rows of the embedding: `asked` (--vocab), or the tokenizer's size if that
/// is 0. More rows than tokens are allowed, fewer are Error 78.
int64_t vocabulary(int64_t asked, const Tokenizer& tokenizer);

/// Windows of `context` tokens of a range of a text; the target of a token is the one that follows.
class Windows : public nn::Samples {
 public:
  /// Windows begin `stride` apart. Stride 1: one begins at every position of [begin, end) that has
  /// a whole one. Stride `context`: they cover the range once, the last may be ragged (target -1).
  /// With `document_end`, the token that ends each document, every document is cut into windows on
  /// its own, and the stride is ignored: no window has tokens of two documents.
  struct Range {
    int64_t begin, end, context, stride = 1;
    std::optional<int32_t> document_end = {};
  };
  /// `vocabulary`: Tokenizer::hash() of the tokens. With `document_end` all tokens are read, and
  /// each window takes 16 bytes; throws Error 65 if no document has two tokens.
  Windows(TokensPtr tokens, std::string vocabulary, const Range& range);

  int64_t count() const override;
  /// Returns the number of documents that `document_end` ends.
  int64_t documents() const { return documents_; }
  /// Returns input and target [samples, context] i32.
  nn::Batch batch(std::span<const int64_t> indices) const override;
  double weight(int64_t index) const override;
  std::string identity() const override;

 private:
  /// The tokens [begin, end): all but the first are targets.
  struct Window {
    int64_t begin, end;
  };
  Window at(int64_t index) const;
  void add_document(int64_t begin, int64_t end);

  TokensPtr tokens_;
  std::string vocabulary_;
  Range range_;
  std::vector<Window> of_documents_;
  int64_t documents_ = 0;
};

/// The way a text is cut.
struct Split {
  int64_t context = 1;      ///< tokens in a window, >= 1
  double val_fraction = 0;  ///< the part of the text held out, at its end; 1: all of it
  std::string name = {};    ///< begins messages: the path
  std::optional<int32_t> document_end = {};  ///< Windows::Range::document_end
};

/// An encoded text: a part to train on, and a part held out.
class TextData {
 public:
  /// Holds the last part of the text out. Throws Error 65 if the text is not UTF-8, has a character
  /// that `tokenizer` lacks, or is too short for a window in each part.
  TextData(std::string_view text, const Tokenizer& tokenizer, const Split& split);
  /// Takes tokens. `vocabulary`: hash of their tokenizer. With `held_out`, trains on all of
  /// `tokens`; `split.val_fraction` is ignored.
  TextData(TokensPtr tokens, TokensPtr held_out, std::string vocabulary, const Split& split);

  int64_t tokens() const { return tokens_->size() + (held_out_ ? held_out_->size() : 0); }
  int64_t train_tokens() const { return train_tokens_; }
  /// Returns the number of held-out targets: all tokens of that part but the first, or 0.
  int64_t val_tokens() const { return std::max<int64_t>(tokens() - train_tokens_ - 1, 0); }

  std::shared_ptr<const Windows> train_samples() const;
  /// Returns none if nothing is held out.
  std::shared_ptr<const Windows> val_samples() const;

  /// Returns the entropy, in nats per token, of the text's token frequencies (unigram_entropy): the
  /// loss of the best model without context. Held-out files of their own do not count.
  double unigram_entropy() const { return text::unigram_entropy(*tokens_); }

 private:
  TokensPtr tokens_, held_out_;  // held_out_: none if it is the end of tokens_
  std::string vocabulary_;
  int64_t train_tokens_ = 0;
  int64_t context_ = 1;
  std::optional<int32_t> document_end_;
};

/// The text that a program trains on.
struct TextOptions {
  std::string data;  ///< empty: ../share/triax/corpus.txt beside the program
  /// char, gpt2:DIR or bpe:N; empty: that of token files or of `initial`, or char.
  std::string tokenizer = {};
  std::string initial = {};      ///< Tokenizer::json() of the checkpoint of --init, if it has one
  bool from_checkpoint = false;  ///< --init was given
  std::string initial_run = {};  ///< the run directory that it is in
  double val_fraction = 0.1;
  std::string document_end = {};  ///< a token, or its number; empty: windows cross documents
  double label_smoothing = 0;     ///< of the loss in training (CrossEntropyOptions::smoothing)
  Chat chat = Chat::off;          ///< --data is a file of conversations
  std::string choices = {};       ///< file of questions, in place of --data
  bool shapes_only = false;       ///< set by `plan`: see read()
};
/// Returns a function for ProgramOptions::init that fills in `initial`, `from_checkpoint` and
/// `initial_run` of options that outlive it.
std::function<void(const std::string&, const parallel::CheckpointState&)> initial_tokenizer(
    TextOptions& o);
/// Returns `--data`, `--tokenizer`, `--val-fraction`, `--document-end` and others.
parallel::Settings text_settings(TextOptions& o);
/// Returns the flags that `evaluate` alone has.
parallel::Settings evaluate_settings(TextOptions& o);

/// Returns the token that TextOptions::document_end names. Throws Error 78 for another text.
std::optional<int32_t> document_end(const std::string& asked, const Tokenizer& tokenizer);

/// The choice of TextOptions::tokenizer.
struct TokenizerChoice {
  enum class Kind { characters, files, learned } kind = Kind::characters;
  std::string directory = {};  ///< that of the files
  int64_t size = 0;            ///< the size of a learned vocabulary
};
/// Reads a choice. Throws Error 78 for a text that is none.
TokenizerChoice tokenizer_choice(const std::string& asked);
/// The bytes of a text that BPE learns from: the first 32 MiB.
inline constexpr size_t learned_from = size_t{32} << 20;

/// A text, or files of tokens, to train on.
struct Text {
  Tokenizer tokenizer;
  TextData data;
  std::string name;  ///< the file, for messages
  /// The samples to train on and those held out, if they are not of `data`.
  std::shared_ptr<const nn::Samples> mixed = {}, held_out = {};
  parallel::Scores scores = {};
  std::string sources = {};  ///< lines about them
  std::string notes = {};    ///< lines that precede the description
  /// The directory whose tokenizer files (tokenizer_files.h) the run keeps; empty: none.
  std::string tokenizer_files = {};
  double label_smoothing = 0;  ///< TextOptions::label_smoothing
  /// Returns a task without its model: samples, unit, description, the tokenizer as attachment.
  parallel::Task task() const;
};
/// Reads a text. With `shapes_only`, a `vocab` and data that are not given or not here, returns
/// zeros and a description that says so. Throws Error 78 if no file is given and there is no
/// corpus, or if sources have several tokenizers, 66 if the file is not there, 65 if it is empty or
/// a text larger than 2 GiB, and what find_tokens, map_tokens, the tokenizer and TextData throw.
Text read(const TextOptions& o, int64_t context, int64_t vocab = 0);

}  // namespace triax::text
