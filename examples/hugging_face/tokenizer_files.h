#pragma once
#include <string>
#include <vector>

#include "core/files.h"

namespace triax::hf {

/// In a run directory: what the tokenizer of an imported model was in its own.
inline constexpr const char* tokenizer_folder = "tokenizer";

/// Copies the files of a tokenizer, and generation_config.json, that are in `from` to `to`, as they
/// are. Returns their names; makes no directory if there are none.
std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to,
                                              const Files& files);

}  // namespace triax::hf
