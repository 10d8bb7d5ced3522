#pragma once
#include <optional>
#include <string>
#include <vector>

#include "examples/text/tokenizer/tokenizer.h"
#include "examples/text/tokenizer/tokenizer_files.h"
#include "triax/core/io/files.h"
#include "triax/parallel/checkpoint/manifest.h"

namespace triax::hf {

/// Returns the tokenizer in the directory of a model with `rows` rows of vocabulary; none, which is
/// printed, if it cannot be read or has more tokens.
std::optional<text::Tokenizer> readable_tokenizer(const std::string& from, int64_t rows,
                                                  std::string& said);

/// Keys of config.json or tokenizer_config.json (`eos_token`) and the token that has this role, by
/// the names that GPT-2, Llama 2 and Llama 3 give it.
struct Role {
  const char* key;
  const char* token;
  int32_t number;
};
std::vector<Role> roles_in(const text::Tokenizer& tokenizer);

/// Writes the tokenizer that a checkpoint carries so that transformers' AutoTokenizer reads it.
/// Returns the names of the files: none unless it is BPE.
std::vector<std::string> write_tokenizer_files(const parallel::CheckpointState& state,
                                               const std::string& to, const Files& files);

}  // namespace triax::hf
