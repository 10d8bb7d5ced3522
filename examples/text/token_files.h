#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/text/tokenizer/tokenizer.h"
#include "examples/text/tokens.h"
#include "triax/core/io/files.h"

namespace triax::text {

/// A file of tokens, little end first.
struct TokenFile {
  std::string path;
  int64_t tokens = 0;
  int width = 2;                        ///< bytes of a token: 2 or 4, unsigned
  uint64_t header = 0;                  ///< bytes in front of the tokens
  std::optional<uint32_t> crc32c = {};  ///< checksum of the tokens' bytes, if it is known
};

/// The manifest.json that `minigpt data` writes into a directory of shards.
struct ShardManifest {
  struct Shard {
    std::string file;
    int64_t tokens = 0;
    uint32_t crc32c = 0;
  };
  struct Input {
    std::string path;
    uint64_t bytes = 0;
    int64_t modified = 0;  ///< as the file system counts
    bool operator==(const Input&) const = default;
  };
  /// The beginning of the next shard: the text from `byte` of an input on, without its first `skip`
  /// tokens.
  struct Next {
    size_t input = 0;
    uint64_t byte = 0;
    int64_t skip = 0;
  };

  int width = 2;
  int64_t vocabulary = 0;
  std::string tokenizer;   ///< Tokenizer::hash() of tokenizer.json
  std::string asked;       ///< --tokenizer
  int64_t shard_size = 0;  ///< tokens of all shards but the last
  std::vector<Input> inputs;
  std::vector<Shard> shards;
  Next next;
  bool complete = false;

  int64_t tokens() const;
  static constexpr const char* name = "manifest.json";
};
std::string to_json(const ShardManifest& manifest);
/// Reads a manifest, untrusted. Throws Error 66 if it is not there, 65 if it is damaged.
ShardManifest read_manifest(const std::string& directory);

/// True if a path of --data names files of tokens, not text: directories, and files `*.bin`.
bool holds_tokens(const std::string& path);

/// The tokens to train on, from files.
struct TokenSet {
  std::vector<TokenFile> training;
  std::vector<TokenFile> held_out;     ///< none: a part of the others has to be held out
  std::vector<std::string> left_out;   ///< paths
  std::string roles = {};              ///< roles of files in a directory that `data` did not make
  std::optional<Tokenizer> tokenizer;  ///< the tokenizer beside them, if any
  int64_t vocabulary = 0;              ///< tokens are below it; 0: nobody says
};
/// Finds the tokens at `path`:
///   a directory with a manifest.json, made by `minigpt data`;
///   a file of 16-bit tokens, as nanoGPT writes it; or with the header of llm.c (256 i32: 20240520,
///   1, the number of tokens); or with Megatron-LM's index of that name, *.idx, beside it;
///   a directory of such files `*.bin`, by the words of their names: val, valid, validation, eval
///   or dev are held out, test is left out, like nanoGPT's train.bin and val.bin; beside a
///   tokenizer.json or a vocab.json and merges.txt if that is known.
/// Untrusted. Throws Error 66, 65; the latter too for a text, and for tokens of 32 or 64 bits that
/// neither a header nor an index announces.
TokenSet find_tokens(const std::string& path);

/// Returns the tokens of files, one after another, mapped into memory. Reads them all once: throws
/// Error 65 for a file of another size or checksum, and for a token that is not below `vocabulary`
/// (0: any). Sets `largest` to the largest token.
TokensPtr map_tokens(const std::vector<TokenFile>& files, int64_t vocabulary, int64_t& largest);

/// Returns a notice if a text is JSON Lines, by its beginning; else nothing.
std::string json_lines_notice(const std::string& path, std::string_view beginning);

}  // namespace triax::text
