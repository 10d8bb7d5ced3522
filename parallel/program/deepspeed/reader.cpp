#include "triax/parallel/program/deepspeed/reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>
#include <sstream>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {
namespace deepspeed {
namespace {

constexpr WithoutEffect withouts[] = {
    {"the terminal gets a line about every two seconds, metrics.jsonl one per step",
     {"steps_per_print"}},
    {"--profile shows where the time of a step goes", {"wall_clock_breakdown", "flops_profiler."}},
    {"--ledger shows communication and memory", {"memory_breakdown", "comms_logger."}},
    {"metrics.jsonl has the numbers, which triax-relay sends to W&B or MLflow",
     {"wandb.", "comet.", "csv_monitor.", "monitor_config."}},
    {"the run directory's config.toml has the configuration", {"dump_state"}},
    {"event files are written to the run directory (--out)",
     {"tensorboard.output_path", "tensorboard.job_name"}},
    {"copies to and from offloaded memory are arranged by triax",
     {"aio.", "zero_optimization.cpu_offload_use_pin_memory",
      "zero_optimization.offload_optimizer.pin_memory",
      "zero_optimization.offload_optimizer.buffer_count",
      "zero_optimization.offload_optimizer.fast_init",
      "zero_optimization.offload_optimizer.pipeline",
      "zero_optimization.offload_optimizer.pipeline_read",
      "zero_optimization.offload_optimizer.pipeline_write",
      "zero_optimization.offload_param.pin_memory", "zero_optimization.offload_param.buffer_count",
      "zero_optimization.offload_param.buffer_size", "zero_optimization.offload_param.max_in_cpu"}},
    {"every checkpoint loads on every mesh",
     {"checkpoint.", "zero_optimization.stage3_gather_16bit_weights_on_model_save",
      "zero_optimization.stage3_gather_fp16_weights_on_model_save",
      "zero_optimization.elastic_checkpoint"}},
    {"triax chooses buckets and overlaps communication with backward",
     {"allgather_size", "zero_optimization.allgather_partitions",
      "zero_optimization.allgather_bucket_size", "zero_optimization.reduce_scatter",
      "zero_optimization.reduce_bucket_size", "zero_optimization.overlap_comm",
      "zero_optimization.contiguous_gradients", "zero_optimization.round_robin_gradients",
      "zero_optimization.use_multi_rank_bucket_allreduce"}},
    {"it would change no result here",
     {"zero_optimization.sub_group_size", "zero_optimization.ignore_unused_parameters",
      "zero_optimization.legacy_stage1", "zero_optimization.memory_efficient_linear",
      "zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "sparse_gradients",
      "optimizer.params.torch_adam", "optimizer.params.fused", "bf16.immediate_grad_update"}},
    {"--zero 3 gathers and frees the weights of one layer at a time",
     {"zero_optimization.stage3_prefetch_bucket_size",
      "zero_optimization.stage3_param_persistence_threshold",
      "zero_optimization.stage3_model_persistence_threshold",
      "zero_optimization.stage3_max_live_parameters",
      "zero_optimization.stage3_max_reuse_distance"}},
    {"every checkpoint has fp32 master weights", {"zero_optimization.load_from_fp32_weights"}},
    {"the model casts its input", {"fp16.auto_cast"}},
    {"--recompute says what is recomputed",
     {"activation_checkpointing.partition_activations",
      "activation_checkpointing.contiguous_memory_optimization",
      "activation_checkpointing.number_checkpoints",
      "activation_checkpointing.synchronize_checkpoint_boundary",
      "activation_checkpointing.profile"}},
};

constexpr Only onlys[] = {
    {"prescale_gradients", "false", "gradients are divided after their sum"},
    {"gradient_predivide_factor", "1 1.0", "gradients are divided after their sum"},
    {"data_types.grad_accum_dtype", "\"fp32\"", "gradients are accumulated in fp32"},
    {"fp16.fp16_master_weights_and_grads", "false", "master weights and gradients are fp32"},
    {"activation_checkpointing.cpu_checkpointing", "false", "activations are not offloaded"},
    {"optimizer.params.adam_w_mode", "true", "there is AdamW, with decoupled weight decay"},
    {"optimizer.params.amsgrad", "false", "there is AdamW without the largest moment"},
    {"optimizer.params.bias_correction", "true", "AdamW corrects the bias of its moments"},
    {"scheduler.params.warmup_min_lr", "0 0.0", "the warm-up rises from 0"},
    {"scheduler.params.warmup_min_ratio", "0 0.0", "the warm-up rises from 0"},
    {"scheduler.params.last_batch_iteration", "-1", "--resume continues the schedule"},
    {"zero_optimization.cpu_offload", "false", "write offload_optimizer: {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_param", "false", "write offload_param: {\"device\": \"cpu\"}"},
    {"zero_optimization.cpu_offload_params", "false", "write offload_param: {\"device\": \"cpu\"}"},
    {"zero_optimization.offload_optimizer.ratio", "1 1.0", "all of the optimizer state goes"},
    {"zero_optimization.zero_hpz_partition_size", "1", "there is no hierarchical ZeRO"},
    {"zero_optimization.mics_shard_size", "-1", "ZeRO shards over all of dp"},
    {"zero_optimization.zero_quantized_weights", "false", "weights are not quantized"},
    {"zero_optimization.zero_quantized_nontrainable_weights", "false", "weights are not quantized"},
    {"zero_optimization.zero_quantized_gradients", "false", "gradients are not quantized"},
};

constexpr const char* blocks[] = {
    "amp",        "autotuning",    "curriculum_learning",    "data_efficiency",  "elasticity",
    "eigenvalue", "hybrid_engine", "progressive_layer_drop", "quantize_training"};

constexpr const char* switches[] = {"fp16",  "bf16",        "tensorboard",    "wandb",
                                    "comet", "csv_monitor", "flops_profiler", "comms_logger"};

/// True for a block with a key `enabled`.
bool can_be_enabled(std::string_view block) {
  return std::ranges::count(blocks, block) + std::ranges::count(switches, block) > 0;
}

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::span<const WithoutEffect> without_effect() { return withouts; }
std::span<const Only> only_off() { return onlys; }
std::span<const char* const> blocks_to_disable() { return blocks; }

std::vector<std::string> keys_of(const Setting& setting) { return words_in(setting.deepspeed); }

std::vector<std::string> known_keys(const Settings& settings) {
  std::vector<std::string> known = words_in(
      "fp16.enabled fp16.initial_scale_power fp16.consecutive_hysteresis bf16.enabled "
      "optimizer.type optimizer.params.betas optimizer.params.momentum scheduler.type "
      "scheduler.params.cos_min_ratio zero_optimization.stage train_batch_size "
      "train_micro_batch_size_per_gpu gradient_accumulation_steps "
      "zero_optimization.offload_optimizer.device zero_optimization.offload_optimizer.nvme_path "
      "zero_optimization.offload_param.device zero_optimization.offload_param.nvme_path");
  for (auto& setting : settings)
    for (auto& key : keys_of(setting)) known.push_back(key);
  for (auto& without : withouts)
    for (std::string_view key : without.keys)
      if (!key.ends_with('.')) known.emplace_back(key);
  for (auto& only : onlys) known.emplace_back(only.key);
  return known;
}

}  // namespace deepspeed

namespace {

using nn::JsonReader;

/// Returns a text without what configurations of DeepSpeed may have beyond JSON: comments (#, //,
/// /* */), a comma behind the last value, and keys without quotes. Lines stay where they are.
std::string strict_json(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::string json;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    std::string_view rest = text.substr(at);
    auto is_word = [](char c) { return std::isalnum(uint8_t(c)) || c == '_'; };
    auto word = size_t(std::ranges::find_if_not(rest, is_word) - rest.begin());
    end = at + std::max<size_t>(word, 1);
    if (rest[0] == '#' || rest.starts_with("//")) {
      end = std::min(text.find('\n', at), text.size());
    } else if (rest.starts_with("/*")) {
      end = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
      json += ' ' + std::string(size_t(std::ranges::count(text.substr(at, end - at), '\n')), '\n');
    } else if (rest[0] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      json += text.substr(at, end - at);
    } else if (word > 0) {
      size_t next = std::min(text.find_first_not_of(blanks, end), text.size() - 1);
      const char* quote = text[next] == ':' ? "\"" : "";
      json += fmt::format("{}{}{}", quote, rest.substr(0, word), quote);
    } else {
      size_t last = rest[0] == '}' || rest[0] == ']' ? json.find_last_not_of(blanks) : json.npos;
      if (last != json.npos && json[last] == ',') json[last] = ' ';
      json += rest[0];
    }
  }
  size_t first = std::min(json.find_first_not_of(blanks), json.size());
  std::rotate(json.begin(), json.begin() + ptrdiff_t(first),
              json.begin() + ptrdiff_t(std::min(first + 1, json.size())));  // it begins with {
  return json;
}

/// Flattens blocks to paths. A block that is true or false alone is one with this as its `enabled`.
void flatten(const JsonReader& object, const std::string& prefix,
             std::map<std::string, JsonReader>& into) {
  for (auto& [key, value] : object.members()) {
    std::string name = prefix + (prefix.empty() && key == "bfloat16" ? "bf16" : key);
    bool block = value.is_object() && !value.members().empty();
    bool is_switch = value.literal() == "true" || value.literal() == "false";
    if (block) flatten(value, name + ".", into);
    else if (is_switch && deepspeed::can_be_enabled(name)) name += ".enabled";
    if (!block)
      check_input(into.emplace(name, value).second, Exit::config,
                  "deepspeed: `{}` is given twice, as `bf16` and as `bfloat16`", printable(name));
  }
}

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  bool fine = parse_number(text, number) && std::isfinite(number);
  return fine ? std::optional(number) : std::nullopt;
}

/// Returns the name, inside of the block, of its first known key.
std::string first_inside(const std::string& block, const std::vector<std::string>& known) {
  auto found = std::ranges::find_if(known, [&](auto& key) { return key.starts_with(block + "."); });
  if (found == known.end()) return {};
  std::string inside = found->substr(block.size() + 1);
  return inside.substr(0, inside.find('.'));
}

std::string_view last_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

/// Returns a value as a flag has it: 2e8 is 200000000. Other text than a number stays JSON, which
/// no flag of a number takes.
std::string flag_text(const std::string& json) {
  auto number = number_in(json);
  bool whole = number && std::abs(*number) < 0x1p53 && *number == std::floor(*number);
  return whole ? fmt::format("{}", int64_t(*number)) : json;
}

}  // namespace

std::string plain(const JsonReader& value) {
  if (!value.is_text()) return value.literal();
  std::string text = value.text();
  if (text == "True" || text == "False") text[0] = char(text[0] - 'A' + 'a');
  return number_in(text) || text == "true" || text == "false" ? text : value.literal();
}

DeepSpeedReader::DeepSpeedReader(const DeepSpeedFile& file, const std::string& text) : file_(file) {
  constexpr int deepest = 16;
  flatten(JsonReader(strict_json(text), file.path, "the configuration", deepest), "", left_);
}

void DeepSpeedReader::attempt(const std::function<void()>& part) try {
  part();
} catch (const Error& e) {
  if (e.code() != Exit::config) throw;
  refused_.emplace_back(e.what());
}

bool DeepSpeedReader::has_block(const std::string& name) const {
  auto next = left_.lower_bound(name + ".");
  return next != left_.end() && next->first.starts_with(name + ".");
}

void DeepSpeedReader::refuse(const std::string& key, const std::string& why) const {
  fail(Exit::config, "{}: {} {}", file_.path, printable(key), why);
}

const Setting* DeepSpeedReader::find(const std::string& flag) const {
  auto found = std::ranges::find(file_.settings, flag, &Setting::name);
  return found == file_.settings.end() ? nullptr : &*found;
}

const Setting& DeepSpeedReader::setting(const std::string& flag, const std::string& key) const {
  if (!knows(flag))
    refuse(key,
           fmt::format("has no counterpart: {} has no --{}; leave it out", file_.program, flag));
  return *find(flag);
}

std::optional<JsonReader> DeepSpeedReader::take(const std::string& key, const std::string& flag) {
  auto found = left_.find(key);
  if (found == left_.end()) return {};
  JsonReader value = found->second;
  bool open = is_auto(key);
  left_.erase(found);
  if (!open) return value;
  if (knows(flag)) leave_to_flag(flag);
  else note(key, "\"auto\" stands for what is always so in triax");
  return {};
}

std::optional<bool> DeepSpeedReader::truth(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (!value) return {};
  std::string text = plain(*value);
  if (text != "true" && text != "false")
    refuse(key, fmt::format("is {}; expected true, false or \"auto\"", printable(text)));
  return text == "true";
}

std::optional<std::string> DeepSpeedReader::word(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (value && !value->is_text())
    refuse(key, fmt::format("is {}; expected a string", printable(value->literal())));
  return value ? std::optional(value->text()) : std::nullopt;
}

std::optional<double> DeepSpeedReader::number(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (!value) return {};
  auto number = number_in(plain(*value));
  if (!number)
    refuse(key, fmt::format("is {}; expected a number or \"auto\"", printable(value->literal())));
  return number;
}

std::optional<int64_t> DeepSpeedReader::whole(const std::string& key, const std::string& flag) {
  auto value = number(key, flag);
  if (!value) return {};
  if (*value != std::floor(*value) || *value < 1 || *value > huge)
    refuse(key, fmt::format("is {}; expected a whole number, 1 or more, or \"auto\"", *value));
  return int64_t(*value);
}

void DeepSpeedReader::choose(const std::string& flag, const std::string& text,
                             const std::string& key) {
  (void)setting(flag, key);
  from_flags_.erase(flag);
  if (given(flag)) note_overridden(key);
  else chosen_[flag] = {text, key};
}

void DeepSpeedReader::choose_default(const std::string& flag, const std::string& text,
                                     const std::string& key) {
  if (!has(key)) choose(flag, text, key);
}

void DeepSpeedReader::copy(const std::string& key, const std::string& flag) {
  if (!has(key)) return;
  bool text = is_text(setting(flag, key));
  if (auto value = take(key, flag))
    choose(flag, text && value->is_text() ? value->text() : flag_text(plain(*value)), key);
}

std::string DeepSpeedReader::value_of(const std::string& flag) const {
  auto chosen = chosen_.find(flag);
  if (chosen != chosen_.end()) return chosen->second.text;
  return without_quotes(literal(*find(flag)));
}

std::string DeepSpeedReader::chosen_by(const std::string& flag) const {
  auto chosen = chosen_.find(flag);
  return chosen == chosen_.end() ? "" : chosen->second.key;
}

void DeepSpeedReader::drop(const std::string& key, const std::string& why) {
  if (left_.erase(key) > 0) note(key, why);
}

void DeepSpeedReader::drop_block(const std::string& block, const std::string& why) {
  for (auto at = left_.lower_bound(block); at != left_.end() && at->first.starts_with(block);
       at = left_.erase(at))
    note(at->first, why);
}

void DeepSpeedReader::drop_empty(const std::vector<std::string>& known) {
  std::erase_if(left_, [&](auto& entry) {
    auto& [key, value] = entry;
    bool empty = value.is_object() || value.is_null();
    bool off = value.literal() == "false" && !first_inside(key, known).empty();
    if (empty || off) note(key, empty ? "it is empty" : "it is off");
    return empty || off;
  });
}

void DeepSpeedReader::refuse_left(const std::string& key,
                                  const std::vector<std::string>& known) const {
  if (auto inside = first_inside(key, known); !inside.empty())
    refuse(key, fmt::format("is {}; expected a block: \"{}\": {{\"{}\": ...}}",
                            printable(literal_of(key)), last_of(key), inside));
  if (std::ranges::count(known, key) > 0)
    refuse(key, "does not go with the other keys here; leave it out");
  std::string meant = hint(key, known, "`{}`");
  fail(Exit::config, "{}: unknown key `{}`{}", file_.path, printable(key),
       meant.empty() ? "; triax has nothing for it: leave it out" : meant);
}

void DeepSpeedReader::finish(const std::vector<std::string>& known) {
  bool all_read = refused_.empty();  // else a known key is left because another was refused
  for (auto& left : left_)
    if (all_read || std::ranges::count(known, left.first) == 0)
      attempt([&] { refuse_left(left.first, known); });
  for (auto& [flag, chosen] : chosen_)
    attempt([&, &flag = flag, &chosen = chosen] {
      assign(setting(flag, chosen.key), chosen.text,
             {Exit::config, fmt::format("{}: {}", file_.path, chosen.key)});
    });
  if (!refused_.empty()) fail(Exit::config, "{}", join(refused_, "\n"));
}

std::string DeepSpeedReader::notes() const {
  std::vector<std::string> set, left;
  for (auto& [flag, chosen] : chosen_) set.push_back(fmt::format("--{} {}", flag, chosen.text));
  for (auto& flag : from_flags_)
    if (!chosen_.contains(flag))
      left.push_back(fmt::format("--{} ({})", flag, default_of(*find(flag))));
  std::string text = file_.path + "\n";
  if (!set.empty()) text += fmt::format("  sets {}\n", join(set, " "));
  if (!left.empty()) text += fmt::format("  leaves to flags: {}\n", join(left, " "));
  for (auto& line : said_) text += fmt::format("  {}\n", line);
  if (!overridden_.empty()) text += fmt::format("  flags win over {}\n", join(overridden_, ", "));
  for (auto& [why, keys] : without_)
    text += fmt::format("  no effect: {}: {}\n", join(keys, ", "), why);
  return text;
}

}  // namespace triax::parallel
