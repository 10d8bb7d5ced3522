#include "examples/hugging_face/gguf.h"

#include <algorithm>
#include <cmath>

#include "examples/hugging_face/stream.h"
#include "triax/core/check.h"
#include "triax/core/io/json.h"
#include "triax/nn/rotary.h"

namespace triax::hf {
namespace {

constexpr uint64_t alignment = 32;
// clang-format off
constexpr const char* names[][2] = {
    {"wte", "token_embd"}, {"wpe", "position_embd"}, {"ln_f", "output_norm"},
    {"ln_1", "attn_norm"}, {"attn.c_attn", "attn_qkv"}, {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"}, {"mlp.c_fc", "ffn_up"}, {"mlp.c_proj", "ffn_down"},
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"},
    {"input_layernorm", "attn_norm"}, {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"}, {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"}, {"mlp.down_proj", "ffn_down"}};
// clang-format on
/// Keys of numbers behind the architecture's name, and those of config.json, either of which is
/// there.
constexpr const char* sizes[][3] = {{"context_length", "max_position_embeddings", "n_positions"},
                                    {"embedding_length", "hidden_size", "n_embd"},
                                    {"block_count", "num_hidden_layers", "n_layer"},
                                    {"attention.head_count", "num_attention_heads", "n_head"},
                                    {"attention.head_count_kv", "num_key_value_heads", "n_head"},
                                    {"attention.key_length", "head_dim", ""},
                                    {"attention.value_length", "head_dim", ""},
                                    {"rope.dimension_count", "head_dim", ""},
                                    {"vocab_size", "vocab_size", ""}};

/// Returns the number of type that a GGUF file has for a dtype.
uint32_t type_of(DType dtype) { return dtype == f32 ? 0 : dtype == f16 ? 1 : 30; }

/// One file in the making.
class Gguf {
 public:
  Gguf(const HubModelParts& model, DType dtype)
      : model_(model), config_(model.config, "config.json", "the file", 32), dtype_(dtype) {
    std::string type = config_.at("model_type").text();
    architecture_ = type == "mistral" ? "llama" : type;
    for (const char* key : {"num_experts", "num_local_experts"})
      check_input(!config_.has(key), Exit::config,
                  "export: a {} has experts, which are not written as GGUF\n  Take a directory: "
                  "llama.cpp's convert_hf_to_gguf.py converts it.",
                  type);
    int64_t context = size_of_model(sizes[0]), window = context;
    if (config_.has("sliding_window") && !config_.at("sliding_window").is_null())
      window = config_.at("sliding_window").size();
    check_input(window >= context, Exit::config,
                "export: a window of {} in a context of {}; llama.cpp's {} has none\n  Expected a "
                "window that is not shorter.",
                window, context, architecture_);
  }

  std::string write(const std::string& path, const Files& files) {
    GgufKeys head;
    std::string said = add_keys(head);
    auto tensors = all_tensors();
    GgufKeys infos;
    uint64_t at = 0;
    for (auto& [name, value] : tensors) {
      infos.text(gguf_name(name));
      Shape shape = shape_of(name, value.shape());
      infos.put(uint32_t(shape.rank()));
      for (int i = shape.rank() - 1; i >= 0; --i) infos.put(uint64_t(shape[i]));
      infos.put(type_of(stored(name, shape))), infos.put(at);
      at += padded(uint64_t(shape.numel()) * triax::size_of(stored(name, shape)));
    }
    GgufKeys start;
    start.put(uint32_t(0x46554747)), start.put(uint32_t(3));  // `GGUF`, version
    start.put(uint64_t(tensors.size())), start.put(head.count());
    File file = files.create(path);
    write_padded(file, start.bytes() + head.bytes() + infos.bytes());
    for (auto& [name, value] : tensors) {
      auto held = value.storage()->hold(Access::read);
      Tensor x = laid_out(name, value.detach());
      x = x.to(stored(name, x.shape())).contiguous();
      check_range(name, x);
      write_padded(file, {static_cast<const char*>(x.data()), size_t(x.bytes())});
    }
    file.sync();
    return said;
  }

 private:
  int64_t size_of_model(const char* const (&key)[3]) const {
    return config_.at(config_.has(key[1]) ? key[1] : key[2]).size();
  }

  std::string add_keys(GgufKeys& keys) const {
    auto own = [&](const std::string& key) { return architecture_ + "." + key; };
    keys.add("general.architecture", architecture_);
    keys.add("general.file_type", dtype_ == f32 ? 0u : dtype_ == f16 ? 1u : 32u);
    for (auto& key : sizes)
      if (config_.has(key[1]) || *key[2]) keys.add(own(key[0]), uint32_t(size_of_model(key)));
    bool gpt2 = architecture_ == "gpt2";
    keys.add(own("feed_forward_length"),
             uint32_t(gpt2 ? 4 * size_of_model(sizes[1]) : config_.at("intermediate_size").size()));
    const char* eps = gpt2 ? "layer_norm_epsilon" : "rms_norm_eps";
    keys.add(own(gpt2 ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
             float(config_.at(eps).real()));
    if (!gpt2) keys.add(own("rope.freq_base"), float(config_.at("rope_theta").real()));
    if (!gpt2 && rope_type() == "linear") {
      keys.add(own("rope.scaling.type"), "linear");
      keys.add(own("rope.scaling.factor"), float(config_.at("rope_scaling").at("factor").real()));
    }
    std::string said = add_tokenizer(keys, model_.directory, config_.at("vocab_size").size());
    for (const char* end : {"bos_token_id", "eos_token_id"}) {
      if (!config_.has(end) || config_.at(end).is_null()) continue;
      auto number = config_.at(end);
      if (number.literal().starts_with('[')) number = number.elements(64).at(0);
      keys.add(std::string("tokenizer.ggml.") + end, uint32_t(number.number(INT32_MAX)));
    }
    if (!config_.has("eos_token_id") || config_.at("eos_token_id").is_null())
      said += "no token ends texts: llama.cpp takes one of its own choice\n";
    return said;
  }

  std::string rope_type() const {
    if (!config_.has("rope_scaling") || config_.at("rope_scaling").is_null()) return "";
    return config_.at("rope_scaling").at("rope_type").text();
  }

  /// Returns the tensors of the model, and the factors of Llama 3's frequencies where it has them.
  std::vector<nn::NamedTensor> all_tensors() const {
    auto all = model_.tensors;
    if (rope_type() != "llama3") return all;
    auto scaling = config_.at("rope_scaling");
    nn::RotaryOptions plain{.base = config_.at("rope_theta").real()}, scaled = plain;
    scaled.scale = scaling.at("factor").real();
    scaled.original_context = scaling.at("original_max_position_embeddings").size();
    scaled.low_turns = scaling.at("low_freq_factor").real();
    scaled.high_turns = scaling.at("high_freq_factor").real();
    int64_t d = config_.at("head_dim").size();
    std::vector<float> factors;
    for (int64_t i = 0; i < d / 2; ++i)
      factors.push_back(float(plain.frequency(i, d) / scaled.frequency(i, d)));
    all.push_back({"rope_freqs.weight", from_host(factors, {d / 2}, cpu)});
    return all;
  }

  /// Returns the name of a tensor of transformers: `blk.0.attn_q.weight`.
  std::string gguf_name(const std::string& theirs) const {
    std::string rest = theirs, block;
    for (std::string layers : {"model.layers.", "h."})
      if (rest.starts_with(layers)) {
        size_t dot = rest.find('.', layers.size());
        block = "blk." + rest.substr(layers.size(), dot + 1 - layers.size());
        rest = rest.substr(dot + 1);
      }
    size_t end = rest.rfind('.');
    std::string stem = rest.substr(0, end);
    auto found = std::ranges::find_if(names, [&](auto& pair) { return pair[0] == stem; });
    if (found != std::end(names)) stem = (*found)[1];
    if (architecture_ == "olmo2" && stem == "ffn_norm") stem = "post_attention_norm";
    return block + stem + rest.substr(end);
  }

  bool turned(const std::string& name, const Shape& shape) const {
    return model_.transposed && name.starts_with("h.") && shape.rank() == 2;
  }
  Shape shape_of(const std::string& name, const Shape& shape) const {
    return turned(name, shape) ? Shape{shape[1], shape[0]} : shape;
  }
  /// Matrices are stored in the dtype asked for; llama.cpp wants the rest in f32.
  DType stored(const std::string& name, const Shape& shape) const {
    return shape.rank() < 2 || name.starts_with("wpe") ? f32 : dtype_;
  }

  /// Returns a tensor as llama.cpp has it: its `llama` turns neighbouring features by rotary, where
  /// transformers turns halves of a head.
  Tensor laid_out(const std::string& name, const Tensor& x) const {
    if (turned(name, x.shape())) return x.transpose(0, 1).contiguous();
    bool q = name.find("q_proj") != std::string::npos;
    if (architecture_ != "llama" || !(q || name.find("k_proj") != std::string::npos)) return x;
    int64_t heads = size_of_model(sizes[q ? 3 : 4]), d = x.size(0) / heads;
    return x.view({heads, 2, d / 2, -1}).transpose(1, 2).contiguous().view(x.shape());
  }

  static uint64_t padded(uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }
  static void write_padded(File& file, std::string_view bytes) {
    file.write(bytes.data(), bytes.size());
    std::string zeros(padded(bytes.size()) - bytes.size(), '\0');
    file.write(zeros.data(), zeros.size());
  }

  const HubModelParts& model_;
  nn::JsonReader config_;
  DType dtype_;
  std::string architecture_;
};

}  // namespace

std::string write_gguf(const HubModelParts& model, DType dtype, const std::string& path,
                       const Files& files) {
  return Gguf(model, dtype).write(path, files);
}

}  // namespace triax::hf
