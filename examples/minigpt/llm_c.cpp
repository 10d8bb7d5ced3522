#include <array>
#include <memory>

#include "examples/minigpt/config.h"
#include "triax/core/check.h"

namespace triax::minigpt {
namespace {

constexpr int32_t magic = 20240326;
constexpr size_t header_words = 256;
constexpr int64_t largest = 1 << 20, deepest = 4096;

struct Header {
  int64_t version, context, vocab, layers, heads, width, padded_vocab;
  DType dtype() const { return version == 3 ? f32 : bf16; }
};

Header read_header(const File& file) {
  std::array<int32_t, header_words> words{};
  check_input(file.size() >= sizeof words, Exit::data,
              "{}: {} bytes; expected a header of {}: a directory with config.json, or a "
              "checkpoint of llm.c",
              file.path(), file.size(), sizeof words);
  file.read_at(0, words.data(), sizeof words);
  check_input(words[0] == magic && (words[1] == 3 || words[1] == 5), Exit::data,
              "{}: magic {}, version {}; expected a checkpoint of llm.c: {}, version 3 (fp32) or 5 "
              "(bf16)",
              file.path(), words[0], words[1], magic);
  Header h{words[1], words[2], words[3], words[4], words[5], words[6], words[7]};
  for (int64_t size : {h.context, h.vocab, h.layers, h.heads, h.width})
    check_input(size >= 1 && size <= largest && h.padded_vocab >= h.vocab && h.layers <= deepest,
                Exit::data,
                "{}: header with context {}, vocabulary {} of {}, {} layers, {} heads, width {}; "
                "expected sizes from 1 to {}, at most {} layers",
                file.path(), h.context, h.vocab, h.padded_vocab, h.layers, h.heads, h.width,
                largest, deepest);
  return h;
}

/// Checks the size before anything is listed: a header may name thousands of layers.
void check_size(const File& file, const Header& h) {
  int64_t w = h.width, of_layer = 12 * w * w + 13 * w;
  int64_t numbers = (h.padded_vocab + h.context + 2) * w + h.layers * of_layer;
  uint64_t bytes = header_words * sizeof(int32_t) + uint64_t(numbers) * size_of(h.dtype());
  check_input(file.size() == bytes, Exit::data, "{}: {} bytes; expected {} by its header",
              file.path(), file.size(), bytes);
}

/// Returns the header as config.json has it; llm.c has no dropout.
std::string config_of(const Header& h) {
  return fmt::format(R"({{"model_type": "gpt2", "n_layer": {}, "n_head": {}, "n_embd": {},
    "n_positions": {}, "vocab_size": {}, "resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}})",
                     h.layers, h.heads, h.width, h.context, h.vocab);
}

}  // namespace

hf::Source open_llm_c(const std::string& path, const Files& files) {
  auto file = std::make_shared<File>(files.open(path));
  Header h = read_header(*file);
  check_size(*file, h);
  const int64_t w = h.width;
  hf::Weights all;
  uint64_t at = header_words * sizeof(int32_t);
  // Adds a tensor of `rows` rows, of which the first are taken: as many as the shape has. Matrices
  // of layers are [out, in] here; `shape` is theirs, [in, out].
  auto add = [&](const std::string& name, const Shape& shape, int64_t rows, bool turned = false) {
    auto read = [=, dtype = h.dtype()] {
      Tensor x = empty(turned ? Shape{shape[1], shape[0]} : shape, dtype, cpu);
      file->read_at(at, x.data(), x.bytes());
      return turned ? x.transpose(0, 1).contiguous() : x;
    };
    all[name] = {h.dtype(), shape, file->path(), read};
    at += uint64_t(rows * (shape.numel() / shape[0])) * size_of(h.dtype());
  };
  add("wte.weight", {h.vocab, w}, h.padded_vocab);
  add("wpe.weight", {h.context, w}, h.context);
  const std::pair<const char*, Shape> kinds[] = {{"ln_1.weight", {w}},
                                                 {"ln_1.bias", {w}},
                                                 {"attn.c_attn.weight", {w, 3 * w}},
                                                 {"attn.c_attn.bias", {3 * w}},
                                                 {"attn.c_proj.weight", {w, w}},
                                                 {"attn.c_proj.bias", {w}},
                                                 {"ln_2.weight", {w}},
                                                 {"ln_2.bias", {w}},
                                                 {"mlp.c_fc.weight", {w, 4 * w}},
                                                 {"mlp.c_fc.bias", {4 * w}},
                                                 {"mlp.c_proj.weight", {4 * w, w}},
                                                 {"mlp.c_proj.bias", {w}}};
  for (auto& [kind, shape] : kinds)  // each for all layers
    for (int64_t i = 0; i < h.layers; ++i)
      add(fmt::format("h.{}.{}", i, kind), shape, shape[0], shape.rank() == 2);
  add("ln_f.weight", {w}, w);
  add("ln_f.bias", {w}, w);
  return {hf::ModelConfig(config_of(h), path, {"gpt2"}), std::move(all)};
}

}  // namespace triax::minigpt
