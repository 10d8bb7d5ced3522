#include "triax/parallel/program/deepspeed/deepspeed.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/program/deepspeed/reader.h"

namespace triax::parallel {
namespace {

void drop_without_effect(DeepSpeedReader& all, const std::vector<std::string>& known) {
  for (auto& [why, keys] : deepspeed::without_effect())
    for (std::string key : keys)
      if (key.ends_with('.')) all.drop_block(key, why);
      else all.drop(key, why);
  all.drop_empty(known);
}

/// Reads the form from before ZeRO had stages, which DeepSpeed still reads.
void zero_without_stage(DeepSpeedReader& all) {
  const std::string key = "zero_optimization";
  if (!all.has(key) || (all.literal_of(key) != "true" && all.literal_of(key) != "false")) return;
  all.choose("zero", all.truth(key, "zero") == true ? "1" : "0", key);
}

void drop_the_only(DeepSpeedReader& all, const deepspeed::Only& only) {
  if (!all.has(only.key)) return;
  std::string value = all.literal_of(only.key), words = fmt::format(" {} \"auto\" ", only.allowed);
  std::string first = words.substr(1, words.find(' ', 1) - 1);
  if (words.find(" " + value + " ") == words.npos)
    all.refuse(only.key, fmt::format("is {}; expected {}: {}", printable(value), first, only.cure));
  all.drop(only.key, fmt::format("{} is the only value that triax takes", first));
}

void drop_disabled(DeepSpeedReader& all, const std::string& block) {
  std::string enabled = block + ".enabled";
  std::string value = all.has(enabled) ? all.literal_of(enabled) : "false";
  all.drop_block(block + ".", fmt::format("triax has no {}", block));
  if (value != "false")
    all.refuse(enabled,
               fmt::format("is {}; expected false: triax has no {}", printable(value), block));
}

void drop_what_is_off(DeepSpeedReader& all) {
  for (auto& only : deepspeed::only_off()) all.attempt([&] { drop_the_only(all, only); });
  for (auto* block : deepspeed::blocks_to_disable())
    all.attempt([&] { drop_disabled(all, block); });
}

void precision(DeepSpeedReader& all) {
  const std::string fp16 = "fp16.enabled", bf16 = "bf16.enabled";
  bool open = all.is_auto(fp16) || all.is_auto(bf16), there = all.has(fp16) || all.has(bf16);
  bool is_fp16 = all.truth(fp16, "precision") == true;
  bool is_bf16 = all.truth(bf16, "precision") == true;
  if (is_fp16 && is_bf16) all.refuse(fp16, "and bf16.enabled are true; expected one of them");
  if (is_fp16 || is_bf16 || (there && !open))
    all.choose("precision", is_fp16 ? "fp16" : is_bf16 ? "bf16" : "fp32", is_bf16 ? bf16 : fp16);
}

void loss_scale(DeepSpeedReader& all) {
  std::string precision = all.value_of("precision");
  if (precision != "fp16")
    return all.drop_block("fp16.", fmt::format("--precision {} has no loss scale", precision));
  const std::string power = "fp16.initial_scale_power", refill = "fp16.consecutive_hysteresis";
  if (auto exponent = all.number(power, "initial-loss-scale"))
    all.choose("initial-loss-scale", fmt::format("{}", std::exp2(*exponent)), power);
  if (auto every_step = all.truth(refill, "hysteresis-refill"))
    all.choose("hysteresis-refill", *every_step ? "good-step" : "growth", refill);
}

void betas(DeepSpeedReader& all, const std::string& second) {
  const std::string key = "optimizer.params.betas";
  std::vector<std::string> both = {"0.9", second};
  if (all.is_auto(key)) {
    all.take(key, "beta1");
    return all.leave_to_flag("beta2");
  }
  if (auto given = all.take(key)) {
    both.clear();
    if (given->literal().starts_with('['))
      for (auto& beta : given->elements(SIZE_MAX)) both.push_back(plain(beta));
    if (both.size() != 2) all.refuse(key, "is not two numbers");
  }
  all.choose("beta1", both[0], key);
  all.choose("beta2", both[1], key);
}

/// Reads the optimizer, with DeepSpeed's defaults.
void optimizer(DeepSpeedReader& all, const std::string& program) {
  if (!all.has_block("optimizer")) return;
  const std::string type = "optimizer.type", params = "optimizer.params.";
  std::string name = all.word(type).value_or("not given");
  if (!all.knows("optimizer")) {
    if (name != "SGD" || !all.knows("momentum"))
      all.refuse(type, fmt::format("is {}; {} has an optimizer of its own: leave `optimizer` out",
                                   printable(name), program));
  } else {
    const std::map<std::string, std::string> known = {
        {"adam", "adamw"}, {"adamw", "adamw"}, {"lion", "lion"}, {"muon", "muon"}};
    std::string lower = name;  // DeepSpeed asks for no capitals
    std::ranges::transform(name, lower.begin(),
                           [](unsigned char c) { return char(std::tolower(c)); });
    if (!known.contains(lower))
      all.refuse(type, fmt::format("is {}; expected AdamW, Adam, Lion or Muon", printable(name)));
    all.choose("optimizer", known.at(lower), type);
    betas(all, lower == "lion" ? "0.99" : "0.999");
    if (lower != "lion") all.choose_default("eps", "1e-08", params + "eps");
  }
  all.choose_default("lr", "0.001", params + "lr");
  all.choose_default("weight-decay", "0", params + "weight_decay");
  all.copy(params + "lr", "lr");
}

/// Reads the cosine, down to a share of the learning rate.
void cosine(DeepSpeedReader& all) {
  const std::string key = "scheduler.params.cos_min_ratio";
  bool open = all.is_auto(key);
  double share = all.number(key, "min-lr").value_or(1e-4);
  if (!open)
    all.choose("min-lr",
               fmt::format("{}", share * std::strtod(all.value_of("lr").c_str(), nullptr)), key);
}

/// Reads a warm-up. Without warmup_max_lr, WarmupLR rises to the optimizer's rate, WarmupDecayLR to
/// 0.001, whatever the optimizer's is: DeepSpeed's defaults.
void warmup_then(DeepSpeedReader& all, const std::string& type) {
  const std::string key = "scheduler.params.warmup_max_lr";
  std::string before = all.chosen_by("lr");
  bool there = all.has(key), decays = type == "WarmupDecayLR";
  if (!before.empty() && !all.is_auto(key) && (there || decays))
    all.note(before, "the scheduler's warmup_max_lr is the learning rate");
  if (!there && !all.given("lr")) {
    if (decays) all.choose("lr", "0.001", key);
    all.say(fmt::format("{} has no warmup_max_lr: it rises to --lr {}, {}", type,
                        all.value_of("lr"), decays ? "DeepSpeed's default" : "the optimizer's"));
  }
  if (decays) all.choose("min-lr", "0", "scheduler.type");
}

/// Reads the scheduler, with DeepSpeed's defaults.
void scheduler(DeepSpeedReader& all) {
  if (!all.has_block("scheduler")) return;
  const std::string type = "scheduler.type", params = "scheduler.params.";
  const std::map<std::string, std::string> known = {
      {"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}};
  std::string name = all.word(type).value_or("not given");
  if (!known.contains(name))
    all.refuse(type, fmt::format("is {}; expected WarmupLR, WarmupDecayLR or WarmupCosineLR",
                                 printable(name)));
  all.choose("lr-schedule", known.at(name), type);
  all.choose_default("warmup", "1000", params + "warmup_num_steps");
  all.choose_default("warmup-shape", "log", params + "warmup_type");
  if (name == "WarmupCosineLR") cosine(all);
  else warmup_then(all, name);
}

/// Returns none, cpu, or the directory that stands for nvme; empty: flags say it.
std::string place(DeepSpeedReader& all, const std::string& block) {
  auto device = all.word(block + ".device", "offload");
  auto path = all.word(block + ".nvme_path", "offload-dir");
  if (device == "nvme") {
    if (!path && !all.given("offload-dir"))
      all.refuse(block + ".nvme_path", "is not given; expected a directory");
    return path.value_or(all.value_of("offload-dir"));
  }
  if (path) all.note(block + ".nvme_path", "the device is not nvme");
  if (device && device != "none" && device != "cpu")
    all.refuse(block + ".device",
               fmt::format("is {}; expected none, cpu or nvme", printable(*device)));
  return device.value_or("");
}

void offload(DeepSpeedReader& all) {
  const std::string blocks[] = {"zero_optimization.offload_optimizer",
                                "zero_optimization.offload_param"};
  std::string state = place(all, blocks[0]), weights = place(all, blocks[1]);
  auto on = [](const std::string& where) { return !where.empty() && where != "none"; };
  if (on(state) && on(weights) && state != weights)
    all.refuse(blocks[1], fmt::format("goes to {}, offload_optimizer to {}; expected one place",
                                      printable(weights), printable(state)));
  if (state.empty() && weights.empty()) return;
  const std::string& where = on(weights) ? weights : state;
  const std::string key = blocks[on(weights)] + ".device";
  all.choose("offload", on(weights) ? "params" : on(state) ? "optimizer" : "off", key);
  if (on(where) && where != "cpu") all.choose("offload-dir", where, key);
  if (on(weights) && state == "none")
    all.note(blocks[0] + ".device", "offload_param takes the optimizer state along");
}

void check_stage_of_offload(DeepSpeedReader& all) {
  const std::string key = "zero_optimization.offload_param.device";
  std::string stage = all.value_of("zero");
  if (all.chosen_by("offload") == key && all.value_of("offload") == "params" && stage != "3")
    all.refuse(key, fmt::format("offloads with zero_optimization.stage {}; expected \"stage\": 3, "
                                "or offload_optimizer in place of offload_param",
                                stage));
}

/// Sets the batch: train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps
/// x dp. A size that is not given follows from the others.
void batch(DeepSpeedReader& all, int64_t dp) {
  const std::string sizes[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                               "gradient_accumulation_steps"};
  auto total = all.whole(sizes[0], "global-batch"), micro = all.whole(sizes[1], "micro-batch"),
       accumulation = all.whole(sizes[2], "global-batch");
  // Doubles do not overflow; sizes that are too large are refused when they are assigned.
  auto set = [&](const char* flag, double size, const std::string& key) {
    all.choose(flag, fmt::format("{:.0f}", size), key);
  };
  if (total) set("global-batch", double(*total), sizes[0]);
  if (micro) set("micro-batch", double(*micro), sizes[1]);
  if (all.given("global-batch")) {
    if (accumulation) all.note_overridden(sizes[2]);
    return;
  }
  bool known = micro || all.given("micro-batch");
  double each = std::strtod(all.value_of("micro-batch").c_str(), nullptr);
  double unit = double(accumulation.value_or(1)) * double(dp);
  if (total && !known) {
    if (std::fmod(double(*total), unit) != 0)
      all.refuse(sizes[0], fmt::format("is {}; expected a multiple of {} {} x dp {}", *total,
                                       sizes[2], accumulation.value_or(1), dp));
    set("micro-batch", double(*total) / unit, sizes[0]);
  } else if (total && accumulation && each * unit != double(*total)) {
    all.refuse(sizes[0],
               fmt::format("is {}; expected {} {} x {} {} x dp {} = {}\n"
                           "  Leave one of the three out: it follows from the others.",
                           *total, sizes[1], each, sizes[2], *accumulation, dp, each * unit));
  } else if (accumulation && !total) {
    set("global-batch", each * unit, sizes[2]);
  }
}

}  // namespace

std::string apply_deepspeed(const DeepSpeedFile& file) {
  std::string text = disk().read(file.path, 1 << 20);
  try {
    DeepSpeedReader all(file, text);
    const auto known = deepspeed::known_keys(file.settings);
    zero_without_stage(all);
    drop_without_effect(all, known);
    drop_what_is_off(all);
    all.attempt([&] { precision(all); });
    all.attempt([&] { loss_scale(all); });
    all.attempt([&] { optimizer(all, file.program); });
    all.attempt([&] { scheduler(all); });
    all.attempt([&] { offload(all); });
    all.attempt([&] { batch(all, file.dp); });
    for (auto& setting : file.settings)
      for (auto& key : deepspeed::keys_of(setting))
        all.attempt([&] { all.copy(key, setting.name); });
    all.attempt([&] { check_stage_of_offload(all); });
    all.finish(known);
    return all.notes();
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    throw Error(
        Exit::config,
        fmt::format("{}\n  --deepspeed reads DeepSpeed's JSON, with comments and keys without "
                    "quotes; TOML is read by --config FILE.",
                    e.what()),
        e.place());
  }
}

}  // namespace triax::parallel
