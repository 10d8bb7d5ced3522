#include "examples/text/token_files.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"

namespace triax::text {
namespace {

constexpr const char* manifest_format = "triax-tokens";
constexpr int manifest_version = 1;
constexpr size_t most = 1 << 20;
constexpr uint64_t longest_shard = uint64_t{1} << 40;  // tokens

std::string dtype_of(int width) { return width == 2 ? "u16" : "u32"; }

uint32_t crc_in(const nn::JsonReader& value) {
  std::string text = value.text();
  uint32_t crc = 0;
  value.require(parse_number(text, crc, 16) && text.size() == 8,
                "is not a checksum of 8 hexadecimal digits");
  return crc;
}

std::string file_in(const nn::JsonReader& value) {
  std::string name = value.text();
  bool plain = !name.empty() && name.find('/') == name.npos && name[0] != '.';
  value.require(plain && without_controls(name) == name, "is not the name of a file");
  return name;
}

}  // namespace

int64_t ShardManifest::tokens() const {
  int64_t sum = 0;
  for (auto& shard : shards) sum += shard.tokens;
  return sum;
}

std::string to_json(const ShardManifest& m) {
  std::vector<std::string> inputs, shards;
  for (auto& i : m.inputs)
    inputs.push_back(fmt::format(R"({{"path": {}, "bytes": {}, "modified": {}}})",
                                 nn::quoted(i.path), i.bytes, i.modified));
  for (auto& s : m.shards)
    shards.push_back(fmt::format(R"({{"file": "{}", "tokens": {}, "crc32c": "{:08x}"}})", s.file,
                                 s.tokens, s.crc32c));
  return fmt::format(
      "{{\n  \"format\": \"{}\",\n  \"version\": {},\n  \"complete\": {},\n  \"dtype\": \"{}\",\n"
      "  \"tokens\": {},\n  \"vocabulary\": {},\n  \"tokenizer\": \"{}\",\n  \"asked\": {},\n"
      "  \"shard_size\": {},\n  \"next\": [{}, {}, {}],\n  \"inputs\": [\n    {}\n  ],\n"
      "  \"shards\": [\n    {}\n  ]\n}}\n",
      manifest_format, manifest_version, m.complete, dtype_of(m.width), m.tokens(), m.vocabulary,
      m.tokenizer, nn::quoted(m.asked), m.shard_size, m.next.input, m.next.byte, m.next.skip,
      join(inputs, ",\n    "), join(shards, ",\n    "));
}

ShardManifest read_manifest(const std::string& directory) {
  std::string path = directory + "/" + ShardManifest::name;
  nn::JsonReader root(disk().read(path, uint64_t{64} << 20), "data: " + path, "the manifest", 4);
  root.require(root.at("format").text() == manifest_format &&
                   root.at("version").number() == manifest_version,
               fmt::format("is of another format; expected {}, version {}", manifest_format,
                           manifest_version));
  ShardManifest m;
  std::string dtype = root.at("dtype").text();
  root.require(dtype == "u16" || dtype == "u32", "has another dtype; expected u16 or u32");
  m.width = dtype == "u16" ? 2 : 4;
  m.vocabulary = root.at("vocabulary").size();
  m.tokenizer = root.at("tokenizer").text();
  m.asked = root.at("asked").text();
  m.shard_size = root.at("shard_size").size();
  m.complete = root.at("complete").flag();
  auto next = root.at("next").sizes(3);
  root.require(next.size() == 3, "has a `next` of other than 3 numbers");
  m.next = {size_t(next[0]), uint64_t(next[1]), next[2]};
  for (auto& i : root.at("inputs").elements(most))
    m.inputs.push_back({i.at("path").text(), i.at("bytes").number(), i.at("modified").size()});
  for (auto& s : root.at("shards").elements(most))
    m.shards.push_back({file_in(s.at("file")), int64_t(s.at("tokens").number(longest_shard)),
                        crc_in(s.at("crc32c"))});
  root.require(root.at("tokens").size() == m.tokens(), "does not have the tokens of its shards");
  return m;
}

}  // namespace triax::text
