#include "parallel/program/deepspeed/keys.h"

#include <algorithm>
#include <iterator>
#include <sstream>

namespace triax::parallel::deepspeed {
namespace {

constexpr WithoutEffect withouts[] = {
    {"the terminal gets a line about every two seconds, metrics.jsonl one per step",
     {"steps_per_print"}},
    {"--profile shows where the time of a step goes", {"wall_clock_breakdown", "flops_profiler."}},
    {"metrics.jsonl has the numbers, --ledger communication and memory",
     {"memory_breakdown", "wandb.", "comet.", "csv_monitor.", "monitor_config.", "comms_logger."}},
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
    for (std::string_view key : without.keys)
      if (!key.ends_with('.')) known.emplace_back(key);
  for (auto& only : onlys) known.emplace_back(only.key);
  return known;
}

}  // namespace triax::parallel::deepspeed
