#pragma once
#include <memory>
#include <string>
#include <vector>

#include "examples/text/tokenizer/tokenizer.h"
#include "triax/nn/samples.h"
#include "triax/parallel/train/model/task.h"

namespace triax::text {

/// Tokens of which some are targets: those of an answer, say.
struct MarkedTokens {
  std::vector<int32_t> tokens;
  std::vector<bool> counts;  ///< for each token; the first is no target
};

/// Sequences as samples of `context` tokens: shorter ones end with zeros, whose targets are -1.
class Marked : public nn::Samples {
 public:
  /// Takes sequences of at most context + 1 tokens.
  Marked(std::vector<MarkedTokens> all, int64_t context)
      : all_(std::move(all)), context_(context) {}
  int64_t count() const override { return std::ssize(all_); }
  nn::Batch batch(std::span<const int64_t> indices) const override;
  double weight(int64_t index) const override;
  std::string identity() const override;

 private:
  std::vector<MarkedTokens> all_;
  int64_t context_;
};

/// Questions with several endings, one of which is right.
struct Choices {
  std::shared_ptr<const nn::Samples>
      samples;          ///< every ending behind its question, the right one first
  int64_t endings = 0;  ///< of each question
  /// The shares of questions whose right ending is the likeliest, by the sum of its tokens'
  /// log-probabilities (`acc`) and by their mean (`acc_norm`). A micro-batch holds whole questions.
  parallel::Scores scores;
};
/// Reads JSON Lines as those of HellaSwag (Zellers et al., 2019): {"ctx": "A man sits", "endings":
/// ["on a chair.", ..], "label": 0}; an ending follows its question behind a space. Longer ones
/// lose the beginning of the question. Throws Error 65, with the line, for others, and for
/// questions of different numbers of endings.
Choices read_choices(const std::string& path, const Tokenizer& tokenizer, int64_t context);

/// The form in which a conversation is one text.
enum class Chat { off, plain, chatml, llama3 };
/// Reads JSON Lines with a conversation each, whose answers alone are targets, with the token that
/// ends them: {"messages": [{"role": "user", "content": ".."}, {"role": "assistant", ..}, ..]}, or
/// {"prompt": "..", "completion": ".."}. A message with "weight": 0 is no target. Behind a context
/// of tokens a conversation is cut. `said` gets a line about those that have no answer before it,
/// and are left out. Throws Error 65, with the line, for other forms, and 78 for a tokenizer
/// without the tokens of the form.
std::vector<MarkedTokens> read_conversations(const std::string& path, const Tokenizer& tokenizer,
                                             Chat form, int64_t context, std::string& said);

}  // namespace triax::text
