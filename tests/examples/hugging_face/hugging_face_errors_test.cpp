// What is wrong with a model directory, a checkpoint or a target: said with file, tensor or key,
// value and what was expected; nothing is written.
#include <cmath>
#include <cstring>

#include "tests/examples/hugging_face/hugging_face.h"
#include "tests/support/expect_error.h"

namespace triax::test::hugging_face_errors_test {

/// A model directory, changed, is refused.
struct Refused {
  const char* model;
  std::function<void(const HubCopy&)> change;
  std::vector<std::string> parts;
  Exit code = Exit::data;
};

auto replace(const std::string& file, const std::string& from, const std::string& to) {
  return [=](const HubCopy& m) { m.replace(file, from, to); };
}
auto config(const std::string& from, const std::string& to) {
  return replace("config.json", from, to);
}
/// Another value of a key.
auto config(const std::string& key, const std::string& from, const std::string& to) {
  return config("\"" + key + "\": " + from, "\"" + key + "\": " + to);
}
auto tensors(std::function<void(std::map<std::string, Tensor>&)> change) {
  return [=](const HubCopy& m) { m.rewrite(change); };
}
auto without(const std::string& name) {
  return tensors([=](auto& t) { t.erase(name); });
}
auto with_zeros(const std::string& name, const Shape& shape) {
  return tensors([=](auto& t) { t[name] = zeros(shape, f32, cpu); });
}
auto weights(std::function<std::string(std::string)> change) {
  return [=](const HubCopy& m) {
    write_bytes(m / "model.safetensors", change(read_bytes(m / "model.safetensors")));
  };
}
auto weight_map(const std::string& text) {
  return [=](const HubCopy& m) {
    write_bytes(m / "model.safetensors.index.json", "{\"weight_map\": " + text + "}");
  };
}
auto gone(const std::string& file) {
  return [=](const HubCopy& m) { std::filesystem::remove(m / file); };
}

const std::string first_part = "model-00001-of-00003.safetensors";

std::vector<Refused> cases() {
  using std::string;
  return {
      // files
      {"gpt2", gone("config.json"), {"config.json", "No such file"}, Exit::not_found},
      {"gpt2", gone("model.safetensors"), {"neither model.safetensors nor"}, Exit::not_found},
      {"gpt2",
       [](const HubCopy& m) {
         std::filesystem::rename(m / "model.safetensors", m / "pytorch_model.bin");
       },
       {"pytorch_model.bin is not read", "save_pretrained"},
       Exit::not_found},
      {"gpt2",
       weights([](string s) { return s.substr(0, s.size() - 5); }),
       {"model.safetensors", "bytes of data; the header describes"}},
      {"gpt2",
       weights([](string s) { return s.substr(0, 100); }),
       {"model.safetensors", "a header of"}},
      {"gpt2", weights([](auto) { return "abc"; }), {"3 bytes; expected at least the 8"}},
      {"gpt2",
       weights([](auto) { return "version https://git-lfs.github.com/spec/v1"; }),
       {"model.safetensors: this is a pointer of Git LFS", "git lfs pull"}},
      {"gpt2",
       weights([](string s) { return string("\xFF\xFF\xFF\xFF\0\0\0\0", 8) + s.substr(8); }),
       {"a header of 4294967295 bytes"}},
      {"llama", gone(first_part), {"weight_map names", first_part, "not there"}, Exit::not_found},
      {"llama",
       weight_map(R"({"a": "../model.safetensors"})"),
       {"weight_map has tensor a in `../model.safetensors`"}},
      {"llama",
       weight_map(R"({"a": ")" + first_part + "\"}"),
       {"weight_map has tensor a in " + first_part + ", which has none"}},
      {"llama",
       replace("model.safetensors.index.json", "weight_map", "map"),
       {"index.json", "has no weight_map"}},
      {"llama",
       [](const HubCopy& m) {
         Tensor x = zeros({24}, f32, cpu);
         nn::save_tensors(m / "model-00009-of-00003.safetensors",
                          {{"model.norm.weight", x}, {"x", x}});
         m.replace("model.safetensors.index.json", "\"weight_map\": {",
                   R"("weight_map": {"x": "model-00009-of-00003.safetensors",)");
       },
       {"tensor model.norm.weight is there twice"}},
      // tensors
      {"gpt2", without("transformer.h.1.ln_2.bias"), {"tensor h.1.ln_2.bias [24] is missing"}},
      {"gpt2",
       with_zeros("transformer.h.2.ln_1.bias", {24}),
       {"tensor h.2.ln_1.bias [24] has no place"}},
      {"gpt2",
       with_zeros("transformer.h.0.mlp.c_fc.weight", {96, 24}),
       {"tensor h.0.mlp.c_fc.weight is [96, 24]; expected [24, 96]"}},
      {"gpt2",
       tensors([](auto& t) {
         auto& w = t["transformer.wpe.weight"];
         w = w.to(f64);
       }),
       {"tensor wpe.weight is f64; expected f32, f16 or bf16"}},
      {"gpt2",
       with_zeros("lm_head.weight", {96, 24}),
       {"tensors lm_head.weight and wte.weight differ"}},
      {"gpt2", with_zeros("wte.weight", {96, 24}), {"tensor wte.weight is there twice"}},
      {"gpt2",
       tensors([](auto& t) { fill_(t["transformer.wpe.weight"].narrow(0, 1, 1), std::nan("")); }),
       {"tensor wpe.weight has nan at element 24; expected finite weights"}},
      {"llama",
       without("lm_head.weight"),
       {"tensor lm_head.weight [96, 24] is missing", "AutoModelForCausalLM"}},
      {"gpt2",
       without("transformer.wte.weight"),
       {"tensor wte.weight [96, 24] is missing, and so is lm_head.weight, to which it is tied",
        "save_pretrained(DIR)"}},
      // config.json
      {"gpt2", config("\"n_layer\"", "\"layers\""), {"config.json", "has no n_layer"}},
      {"gpt2", config("n_layer", "2", "\"2\""), {"n_layer", "is not a number"}},
      {"gpt2", config("n_layer", "2", "0"), {"n_layer is 0; expected 1 or more"}},
      {"gpt2", config("n_head", "4", "5"), {"config.json: heads=5 does not divide"}},
      {"gpt2", config("{\n", "\n"), {"config.json"}},
      {"gpt2",
       config("gelu_new", "relu"),
       {"activation_function is \"relu\"; expected", "gelu_new"}},
      {"gpt2",
       config("layer_norm_epsilon", "1e-05", "1e-06"),
       {"layer_norm_epsilon is 1e-06; expected 1e-05"}},
      {"gpt2", config("resid_pdrop", "0.0", "0.1"), {"resid_pdrop 0.1, embd_pdrop 0"}},
      {"gpt2", config("n_inner", "null", "48"), {"n_inner is 48; expected null or 96"}},
      {"gpt2",
       config("scale_attn_by_inverse_layer_idx", "false", "true"),
       {"scale_attn_by_inverse_layer_idx is true; expected false"}},
      {"gpt2",
       config("tie_word_embeddings", "true", "false"),
       {"tie_word_embeddings is false; expected true"}},
      {"gpt2",
       config("\"model_type\"", "\"quantization_config\": {\"bits\": 4}, \"model_type\""),
       {"quantization_config is {\"bits\":4}"}},
      {"gpt2",
       config("model_type", "\"gpt2\"", "\"llama\""),
       {"model_type is `llama`; expected `gpt2`", "Use the program `triax-llama`."}},
      {"llama",
       config("model_type", "\"llama\"", "\"phi3\""),
       {"model_type is `phi3`; expected `llama`"}},
      {"llama",
       config("hidden_act", "\"silu\"", "\"gelu\""),
       {"hidden_act is \"gelu\"; expected \"silu\""}},
      {"llama",
       config("attention_bias", "false", "true"),
       {"attention_bias is true; expected false"}},
      {"llama",
       config("tie_word_embeddings", "false", "true"),
       {"tensors lm_head.weight and model.embed_tokens.weight differ"}},
      {"llama",
       config("head_dim", "6", "8"),
       {"tensor model.layers.0.self_attn.q_proj.weight is [24, 24]; expected [32, 24]"}},
      {"llama", config("head_dim", "6", "5"), {"config.json: heads=4 with width=24", "head-dim=5"}},
      // mixtures of experts
      {"mixtral",
       config("num_local_experts", "4", "2000000000"),
       {"config.json: experts: `2000000000`; expected a whole number in [0, 65536]"}},
      {"mixtral", config("num_local_experts", "4", "60000"), {"more experts than tensors"}},
      {"mixtral",
       config("num_local_experts", "4", "3"),
       {"block_sparse_moe.gate.weight is [4, 24]; expected [3, 24]"}},
      {"mixtral", config("\"num_local_experts\"", "\"experts\""), {"has no num_experts"}},
      {"mixtral",
       config("router_jitter_noise", "0.0", "0.1"),
       {"router_jitter_noise is 0.1; expected 0.0"}},
      {"mixtral",
       without("model.layers.1.block_sparse_moe.experts.2.w3.weight"),
       {"experts.2.w3.weight [16, 24] is missing"}},
      {"olmoe", config("clip_qkv", "null", "8.0"), {"clip_qkv is 8.0; expected null"}},
      {"olmoe",
       without("model.layers.0.self_attn.k_norm.weight"),
       {"k_norm.weight [12] is missing"}},
      {"olmoe",
       config("attention_bias", "false", "true"),
       {"attention_bias is true; expected false"}},
      {"qwen2_moe",
       config("use_sliding_window", "false", "true"),
       {"use_sliding_window is true; expected null or false"}},
      {"qwen2_moe",
       config("shared_expert_intermediate_size", "24", "36"),
       {"shared_expert.gate_proj.weight is [24, 24]; expected [36, 24]"}},
      {"qwen2_moe",
       config("shared_expert_intermediate_size", "24", "6"),
       {"shared_expert.gate_proj.weight is [24, 24]; expected [12, 24]"}},
      {"qwen2_moe",
       without("model.layers.0.self_attn.k_proj.bias"),
       {"k_proj.bias [12] is missing"}},
      {"qwen3_moe",
       config("decoder_sparse_step", "1", "2"),
       {"decoder_sparse_step is 2; expected 1: blocks without experts are the first"}},
      {"qwen3_moe",
       config("mlp_only_layers\": [\n    0", "mlp_only_layers\": [\n    1"),
       {"mlp_only_layers is [1]; expected [] or null"}},
      {"qwen3_moe",
       config("model_type", "\"qwen3_moe\"", "\"qwen3_next\""),
       {"model_type is `qwen3_next`; expected `llama` or `mistral` or `olmo2` or `qwen2` or"}},
      {"llama",
       config("\"rope_parameters\"", "\"rope_scaling\": {\"factor\": 8.0}, \"rope_parts\""),
       {"config.json", "has no rope_type"}},
      {"llama",
       config("rope_type", "\"default\"", "\"yarn\""),
       {"rope_type is \"yarn\"; expected \"default\" or \"linear\" or \"llama3\""}},
      {"llama",
       config("rope_type", "\"default\"", "\"linear\""),
       {"rope_parameters", "has no factor"}},
      {"llama3",
       config("low_freq_factor", "1.0", "4.0"),
       {"config.json: rope-low-turns=4 with rope-high-turns=4"}},
      {"llama3", config("factor", "4.0", "0.5"), {"config.json: rope-factor"}},
      {"gpt2",
       config("n_layer", "2", "2147483647"),
       {"n_layer is 2147483647; expected no more than its 28 tensors"}},
      {"llama3",
       config("tie_word_embeddings", "true", "false"),
       {"tensor lm_head.weight [96, 24] is missing", "AutoModelForCausalLM"}},
  };
}

TEST(HuggingFaceErrors, OfModelDirectories) {
  for (auto& c : cases()) {
    HubModel model = hub_model(c.model);
    HubCopy copy(model);
    c.change(copy);
    TemporaryDirectory directory;
    SCOPED_TRACE(c.parts[0]);
    expect_error([&] { import_to(model, copy.path(), directory / "run"); }, c.parts, c.code);
    EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
  }
}

TEST(HuggingFaceErrors, OfPaths) {
  HubModel gpt2 = gpt2_model(), llama = llama_model();
  TemporaryDirectory directory;
  auto refused = [&](auto work, std::vector<std::string> parts, Exit code) {
    expect_error(work, parts, code);
  };
  refused([&] { import_to(gpt2, directory / "none", directory / "run"); },
          {"none: no such directory"}, Exit::not_found);
  refused([&] { import_to(gpt2, "", directory / "run"); }, {"--from and --out"}, Exit::config);
  refused([&] { import_to(gpt2, llama.folder, directory / "run"); }, {"model_type is `llama`"},
          Exit::data);
  import_to(gpt2, gpt2.folder, directory / "run");
  std::string before = read_bytes(directory / "run/step-0/manifest.json");
  refused([&] { import_to(gpt2, gpt2.folder, directory / "run"); },
          {"run is there already; expected a new or an empty directory"}, Exit::config);
  refused([&] { export_to(gpt2, directory / "run", directory / "run"); }, {"is there already"},
          Exit::config);
  write_bytes(directory / "file", "in the way");
  refused([&] { export_to(gpt2, directory / "run", directory / "file"); }, {"is there already"},
          Exit::config);
  refused([&] { export_to(gpt2, "", directory / "back"); }, {"--checkpoint and --to"},
          Exit::config);
  refused([&] { export_to(gpt2, directory / "none", directory / "back"); },
          {"none: no such directory"}, Exit::not_found);
  refused(
      [&] { export_to(llama, directory / "run", directory / "back"); },
      {"tensor block0.out.weight is missing; expected [24, 24], in a checkpoint of triax-llama"},
      Exit::data);
  EXPECT_EQ(read_bytes(directory / "run/step-0/manifest.json"), before);
  EXPECT_FALSE(std::filesystem::exists(directory / "back"));
  std::filesystem::create_directory(directory / "empty");
  export_to(gpt2, directory / "run", directory / "empty/");  // an empty one will do
  EXPECT_TRUE(std::filesystem::exists(directory / "empty/config.json"));
}

TEST(HuggingFaceErrors, ADamagedCheckpointIsNotExported) {
  HubModel model = gpt2_model();
  TemporaryDirectory directory;
  import_to(model, model.folder, directory / "run");
  std::string file = directory / "run/step-0/rank0.safetensors", text = read_bytes(file);
  text[text.size() - 100] ^= 1;
  write_bytes(file, text);
  expect_data_error([&] { export_to(model, directory / "run", directory / "back"); },
                    {"is damaged", "checksum differs"});
  EXPECT_FALSE(std::filesystem::exists(directory / "back"));
}

// Masks and a tied head that is stored twice are no weights; a tokenizer's files come along.
TEST(HuggingFace, TakesWhatOlderFilesHave) {
  HubModel model = gpt2_model();
  HubCopy copy(model);
  copy.rewrite([](auto& t) {
    t["transformer.h.0.attn.bias"] = zeros({1, 1, 16, 16}, u8, cpu);
    t["transformer.h.0.attn.masked_bias"] = zeros({}, f32, cpu);
    t["lm_head.weight"] = t["transformer.wte.weight"];
  });
  TemporaryDirectory directory;
  import_to(model, copy.path(), directory / "run");
  export_to(model, directory / "run", directory / "back");
  EXPECT_FALSE(hub_tensors(directory / "back").contains("lm_head.weight"));
  for (std::string file : {"vocab.json", "merges.txt"}) {
    EXPECT_EQ(read_bytes(directory / "run/tokenizer/" + file), read_bytes(copy / file));
    EXPECT_EQ(read_bytes(directory / "back/" + file), read_bytes(copy / file));
  }
}

/// The file that llm.c's train_gpt2.py would write of the model in tests/reference.
std::string llm_c_file(DType dtype) {
  constexpr int padded = 128;
  std::vector<int32_t> header(256);
  std::vector<int32_t> sizes = {20240326, dtype == f32 ? 3 : 5, 16, 96, 2, 4, 24, padded};
  std::ranges::copy(sizes, header.begin());
  std::string file(reinterpret_cast<char*>(header.data()), 1024);
  auto tensors = hub_tensors(gpt2_model().folder);
  auto put = [&](Tensor x) {
    x = x.to(dtype).contiguous();
    file.append(static_cast<char*>(x.data()), x.bytes());
  };
  put(tensors.at("transformer.wte.weight"));
  put(zeros({padded - 96, 24}, f32, cpu));
  put(tensors.at("transformer.wpe.weight"));
  for (const char* name :
       {"ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight",
        "attn.c_proj.bias", "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias",
        "mlp.c_proj.weight", "mlp.c_proj.bias"})
    for (int layer : {0, 1}) {
      Tensor x = tensors.at(fmt::format("transformer.h.{}.{}", layer, name));
      put(x.rank() == 2 ? x.transpose(0, 1) : x);
    }
  put(tensors.at("transformer.ln_f.weight"));
  put(tensors.at("transformer.ln_f.bias"));
  return file;
}

TEST(LlmC, ItsCheckpointsAreReadLikeThoseOfTransformers) {
  HubModel model = gpt2_model();
  for (DType dtype : {f32, bf16}) {
    TemporaryDirectory directory;
    HubCopy copy(model);
    copy.rewrite([&](auto& tensors) {
      for (auto& [name, value] : tensors) value = value.to(dtype);
    });
    write_bytes(directory / "gpt2.bin", llm_c_file(dtype));
    import_to(model, copy.path(), directory / "run");
    import_to(model, directory / "gpt2.bin", directory / "llm.c");
    for (const char* file : {"rank0.safetensors", "manifest.json"})
      EXPECT_EQ(read_bytes(directory / "llm.c/step-0/" + file),
                read_bytes(directory / "run/step-0/" + file));
  }
}

TEST(LlmC, RefusesOtherFiles) {
  TemporaryDirectory directory;
  std::string good = llm_c_file(f32), path = directory / "gpt2.bin";
  auto refused = [&](const std::string& file, const std::vector<std::string>& parts) {
    write_bytes(path, file);
    expect_data_error([&] { import_to(gpt2_model(), path, directory / "run"); }, parts);
    EXPECT_FALSE(std::filesystem::exists(directory / "run"));
  };
  auto with = [&](size_t word, int32_t value) {
    std::string file = good;
    std::memcpy(&file[4 * word], &value, 4);
    return file;
  };
  refused("abc", {"3 bytes; expected a header of 1024"});
  refused(with(0, 7), {"magic 7, version 3; expected"});
  refused(with(1, 1), {"version 1; expected"});
  refused(with(4, -1), {"-1 layers"});
  refused(with(4, 1 << 30), {"1073741824 layers"});
  refused(with(4, 3), {"bytes; expected", "by its header"});
  refused(good.substr(0, good.size() - 4), {"bytes; expected", "by its header"});
}

}  // namespace triax::test::hugging_face_errors_test
