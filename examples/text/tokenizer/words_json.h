#pragma once
#include <string>

#include "core/io/json.h"
#include "examples/text/tokenizer/words.h"

namespace triax::text {

/// Reads the pre_tokenizer of a tokenizer.json: ByteLevel, alone or as the last of a Sequence of
/// Split and Digits. Throws Error 65 for another one.
Words words_from_json(const nn::JsonReader& pre_tokenizer);
/// Returns a pre_tokenizer that cuts texts in the same way; equal for equal splits.
std::string to_json(const Words& words);

/// Returns the flag `key`; `otherwise` where it is absent or null.
bool flag_in(const nn::JsonReader& object, const char* key, bool otherwise);

}  // namespace triax::text
