#include "examples/hugging_face/adapters.h"

#include <set>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"
#include "triax/nn/state.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::hf {
namespace {

/// Returns `block0.qkv.lora_a.weight` of `block0.qkv.weight` and `lora_a`.
std::string factor_name(const std::string& weight, const char* factor) {
  return weight.substr(0, weight.rfind('.') + 1) + factor + ".weight";
}

/// Returns a part's rows of B [out, rank], in the order of the other model.
Tensor rows_of(const Part& part, const Tensor& b, bool transposed) {
  Tensor rows = clone(part.view ? part.view(b) : b).contiguous();
  if (!transposed) return rows.view({-1, b.size(1)});
  return clone(rows.view({b.size(1), -1}).transpose(0, 1)).contiguous();
}

}  // namespace

Adapters::Adapters(parallel::Checkpoint& checkpoint, const parallel::LoraOptions* lora,
                   parallel::Weights weights)
    : checkpoint_(checkpoint), lora_(lora ? *lora : parallel::LoraOptions{}), weights_(weights) {}

bool Adapters::on(const std::string& weight) const {
  return lora_.rank > 0 && weight.ends_with(".weight") &&
         checkpoint_.tensors().contains(factor_name(weight, "lora_a"));
}

Tensor Adapters::read(const std::string& weight, const char* factor) const {
  std::string name = factor_name(weight, factor);
  auto found = checkpoint_.tensors().find(name);
  check_input(found != checkpoint_.tensors().end(), Exit::data,
              "checkpoint {}: tensor {} is missing, the other half of an adapter",
              checkpoint_.path(), name);
  parallel::Part all{.full = found->second.full};
  return parallel::stored_weight(checkpoint_, name, all, weights_).to(f32).view(all.full);
}

Tensor Adapters::merged(const std::string& name, const Tensor& weight) const {
  if (!on(name)) return weight;
  return weight.to(f32) + matmul(read(name, "lora_b"), read(name, "lora_a")) * lora_.scale();
}

void Adapters::write(const Architecture& a, const std::string& to, const Files& files) const {
  std::vector<nn::NamedTensor> all;
  std::set<std::string> modules;
  for (const Rule& rule : a.rules()) {
    if (!on(rule.ours)) continue;
    Tensor down = read(rule.ours, "lora_a"), up = read(rule.ours, "lora_b");
    for (const Part& part : rule.parts) {
      std::string module = part.name.substr(0, part.name.rfind('.'));
      std::string name = "base_model.model." + a.prefix + module;
      all.push_back({name + ".lora_A.weight", down});
      all.push_back({name + ".lora_B.weight", rows_of(part, up, a.transposed)});
      modules.insert(nn::quoted(module.substr(module.rfind('.') + 1)));
    }
  }
  check_input(
      !all.empty(), Exit::config,
      "export: checkpoint {} has no adapters\n  Train with --lora RANK, or leave --peft out.",
      checkpoint_.path());
  nn::write_tensors(to + "/adapter_model.safetensors", all, {{"format", "pt"}}, files);
  files.write(
      to + "/adapter_config.json",
      fmt::format(
          "{{\n  \"peft_type\": \"LORA\",\n  \"task_type\": \"CAUSAL_LM\",\n  \"r\": {},\n  "
          "\"lora_alpha\": {},\n  \"lora_dropout\": 0.0,\n  \"bias\": \"none\",\n  "
          "\"fan_in_fan_out\": {},\n  \"inference_mode\": true,\n  "
          "\"base_model_name_or_path\": null,\n  \"target_modules\": [{}]\n}}\n",
          lora_.rank, parallel::toml_real(lora_.scale() * double(lora_.rank)), a.transposed,
          join(modules, ", ")));
}

}  // namespace triax::hf
