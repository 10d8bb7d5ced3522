#pragma once
#include <functional>

#include "examples/text/token_files.h"
#include "triax/parallel/program/program.h"

namespace triax::text {

/// The job of `data`.
struct ShardJob {
  std::vector<std::string> inputs;  ///< text files, UTF-8, taken as one text
  std::string tokenizer = "char";   ///< as --tokenizer
  std::string out;                  ///< directory
  int64_t shard_size = 100'000'000;
};

/// The progress of a job.
struct ShardProgress {
  const char* doing;           ///< `tokenizing`
  uint64_t done = 0, all = 0;  ///< bytes of the inputs
  int64_t tokens = 0;
};

/// Turns texts of any size into shards of tokens, in bounded memory: DIR/tokens-00000.bin .. (u16,
/// or u32 if there are more than 65,536 tokens, little end first, no header), tokenizer.json and
/// manifest.json. A word does not go across the end of an input. A call after one that was killed
/// goes on behind its last whole shard and makes the same files; if all are there, it does nothing.
/// `tell` is called after every few MB.
///
/// Throws Error 66 or 65 for inputs that are not there, empty or not UTF-8, and for the tokenizer;
/// 78 if `out` holds shards of other inputs or settings, or is used by another process; 73 if
/// `out` cannot be written, and then removes the unfinished shard.
ShardManifest make_shards(const ShardJob& job,
                          const std::function<void(const ShardProgress&)>& tell,
                          const Files& files = disk());

/// The options of `data` and `data inspect`.
struct DataOptions {
  std::string config, inspected;
  ShardJob job;
};
/// Returns the verbs of a program that make shards of tokens from texts, check and describe them.
std::vector<parallel::Verb> data_verbs(const std::string& program, DataOptions& o);

}  // namespace triax::text
