#include "parallel/program/deepspeed/keys.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

namespace triax::parallel::deepspeed {
namespace {

constexpr auto* buckets = "triax chooses buckets and overlaps communication with backward";
constexpr auto* pinned = "copies to and from offloaded memory are arranged by triax";
constexpr auto* gathering = "--zero 3 gathers and frees the weights of one layer at a time";
constexpr auto* terminal =
    "the terminal gets a line about every two seconds, metrics.jsonl one per step";
constexpr auto* monitors = "metrics.jsonl has the numbers, --ledger communication and memory";
constexpr auto* event_files = "event files are written to the run directory (--out)";
constexpr auto* timings = "--profile shows where the time of a step goes";
constexpr auto* recomputation = "--recompute says what is recomputed";
constexpr auto* any_mesh = "every checkpoint loads on every mesh";
constexpr auto* same_result = "it would change no result here";

constexpr WithoutEffect withouts[] = {
    {"steps_per_print", terminal},
    {"wall_clock_breakdown", timings},
    {"memory_breakdown", monitors},
    {"dump_state", "the run directory's config.toml has the configuration"},
    {"tensorboard.output_path", event_files},
    {"tensorboard.job_name", event_files},
    {"wandb.", monitors},
    {"comet.", monitors},
    {"csv_monitor.", monitors},
    {"monitor_config.", monitors},
    {"flops_profiler.", timings},
    {"comms_logger.", monitors},
    {"aio.", pinned},
    {"checkpoint.", any_mesh},
    {"allgather_size", buckets},
    {"zero_optimization.allgather_partitions", buckets},
    {"zero_optimization.allgather_bucket_size", buckets},
    {"zero_optimization.reduce_scatter", buckets},
    {"zero_optimization.reduce_bucket_size", buckets},
    {"zero_optimization.overlap_comm", buckets},
    {"zero_optimization.contiguous_gradients", buckets},
    {"zero_optimization.round_robin_gradients", buckets},
    {"zero_optimization.use_multi_rank_bucket_allreduce", buckets},
    {"zero_optimization.sub_group_size", same_result},
    {"zero_optimization.stage3_prefetch_bucket_size", gathering},
    {"zero_optimization.stage3_param_persistence_threshold", gathering},
    {"zero_optimization.stage3_model_persistence_threshold", gathering},
    {"zero_optimization.stage3_max_live_parameters", gathering},
    {"zero_optimization.stage3_max_reuse_distance", gathering},
    {"zero_optimization.stage3_gather_16bit_weights_on_model_save", any_mesh},
    {"zero_optimization.stage3_gather_fp16_weights_on_model_save", any_mesh},
    {"zero_optimization.elastic_checkpoint", any_mesh},
    {"zero_optimization.load_from_fp32_weights", "every checkpoint has fp32 master weights"},
    {"zero_optimization.ignore_unused_parameters", same_result},
    {"zero_optimization.legacy_stage1", same_result},
    {"zero_optimization.memory_efficient_linear", same_result},
    {"zero_optimization.cpu_offload_use_pin_memory", pinned},
    {"zero_optimization.offload_optimizer.pin_memory", pinned},
    {"zero_optimization.offload_optimizer.buffer_count", pinned},
    {"zero_optimization.offload_optimizer.fast_init", pinned},
    {"zero_optimization.offload_optimizer.pipeline", pinned},
    {"zero_optimization.offload_optimizer.pipeline_read", pinned},
    {"zero_optimization.offload_optimizer.pipeline_write", pinned},
    {"zero_optimization.offload_param.pin_memory", pinned},
    {"zero_optimization.offload_param.buffer_count", pinned},
    {"zero_optimization.offload_param.buffer_size", pinned},
    {"zero_optimization.offload_param.max_in_cpu", pinned},
    {"zero_allow_untested_optimizer", same_result},
    {"zero_force_ds_cpu_optimizer", same_result},
    {"sparse_gradients", same_result},
    {"optimizer.params.torch_adam", same_result},
    {"optimizer.params.fused", same_result},
    {"fp16.auto_cast", "the model casts its input"},
    {"bf16.immediate_grad_update", same_result},
    {"activation_checkpointing.partition_activations", recomputation},
    {"activation_checkpointing.contiguous_memory_optimization", recomputation},
    {"activation_checkpointing.number_checkpoints", recomputation},
    {"activation_checkpointing.synchronize_checkpoint_boundary", recomputation},
    {"activation_checkpointing.profile", recomputation},
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

std::vector<std::string> words_in(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

std::span<const WithoutEffect> without_effect() { return withouts; }
std::span<const Only> only_off() { return onlys; }
std::span<const char* const> blocks_to_disable() { return blocks; }

bool can_be_enabled(std::string_view block) {
  return std::ranges::count(blocks, block) + std::ranges::count(switches, block) > 0;
}

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
    if (!std::string_view(without.key).ends_with('.')) known.emplace_back(without.key);
  for (auto& only : onlys) known.emplace_back(only.key);
  return known;
}

}  // namespace triax::parallel::deepspeed
