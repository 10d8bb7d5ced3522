#pragma once
#include <string>
#include <vector>

#include "triax/core/io/files.h"

namespace triax::text {

/// The folder, in a run directory and beside shards, with the tokenizer's files as they were.
inline constexpr const char* tokenizer_folder = "tokenizer";

/// Returns names of the files in a directory that make a tokenizer of Hugging Face, with its chat
/// templates and generation_config.json.
std::vector<std::string> tokenizer_files(const std::string& directory, const Files& files = disk());

/// Returns `directory` or its tokenizer_folder, whichever has such files; empty if neither has more
/// than the tokenizer.json that every run has.
std::string with_tokenizer_files(const std::string& directory);

/// Copies those files from `from` to `to`, as they are. Returns their names; makes no directory if
/// there are none.
std::vector<std::string> copy_tokenizer_files(const std::string& from, const std::string& to,
                                              const Files& files);

/// Copies them to the tokenizer_folder of `run`, with the config.json beside them, whose ends of
/// text are the tokenizer's.
std::vector<std::string> keep_tokenizer_files(const std::string& from, const std::string& run,
                                              const Files& files);

}  // namespace triax::text
