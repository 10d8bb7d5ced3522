// DeepSpeed's JSON as flags of train: what is set, what is left to flags, what has no effect, what
// is refused.
#include "tests/parallel/program/deepspeed.h"

namespace triax::parallel::deepspeed_test {

using namespace test;
using DeepSpeed = DeepSpeedFixture;

// Hugging Face's ZeRO-2 example: everything it can leave to flags is "auto".
constexpr auto zero2 = R"({
    "fp16": {
        "enabled": "auto", // true
        "loss_scale": 0,
        "loss_scale_window": 1000,
        "initial_scale_power": 16,
        "hysteresis": 2,
        "min_loss_scale": 1
    },
    "optimizer": {
        "type": "AdamW",
        "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}
    },
    "scheduler": {
        "type": "WarmupLR",
        "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}
    },
    "zero_optimization": {
        "stage": 2,
        "offload_optimizer": {"device": "cpu", "pin_memory": true}, /* less memory */
        "allgather_partitions": true,
        "allgather_bucket_size": 2e8,
        "overlap_comm": true,
        "reduce_scatter": true,
        "reduce_bucket_size": 2e8,
        "contiguous_gradients": true
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": false
}
)";

TEST_F(DeepSpeed, TheExampleOfHuggingFace) {
  std::string notes = apply(zero2);
  EXPECT_EQ(o_.step.zero, Zero::gradients);
  EXPECT_EQ(o_.step.offload, Offloaded::optimizer);
  EXPECT_EQ(o_.lr.decay, optim::Schedule::Decay::constant);
  EXPECT_EQ(o_.lr.shape, optim::Schedule::Warmup::log) << "DeepSpeed's default";
  EXPECT_EQ(o_.step.dtype, f32);
  TrainOptions defaults;
  EXPECT_EQ(o_.lr.peak, defaults.lr.peak);
  EXPECT_EQ(o_.step.micro_batch, defaults.step.micro_batch);
  EXPECT_EQ(o_.step.global_batch, 0);
  EXPECT_TRUE(says(notes,
                   "sets --lr-schedule constant --offload optimizer --optimizer adamw "
                   "--warmup-shape log --zero 2\n"));
  for (const char* flag :
       {"--precision (fp32)", "--lr (0.001)", "--beta1 (0.9)", "--beta2 (0.99)", "--eps (1e-08)",
        "--weight-decay (0.1)", "--warmup (100, or half of fewer than 200 steps)", "--clip (1)",
        "--global-batch (micro-batch x dp x ep)", "--micro-batch (12)"})
    EXPECT_TRUE(says(notes, flag));
  EXPECT_TRUE(says(notes,
                   "no effect: fp16.hysteresis, fp16.initial_scale_power, "
                   "fp16.loss_scale, fp16.loss_scale_window, fp16.min_loss_scale: "
                   "--precision fp32 has no loss scale\n"));
  EXPECT_TRUE(says(notes,
                   "zero_optimization.allgather_partitions, "
                   "zero_optimization.allgather_bucket_size, "));
  for (const char* key : {"scheduler.params.warmup_min_lr", "offload_optimizer.pin_memory",
                          "overlap_comm", "reduce_scatter", "reduce_bucket_size",
                          "contiguous_gradients", "steps_per_print: ", "wall_clock_breakdown: "})
    EXPECT_TRUE(says(notes, key)) << "no key is dropped in silence";
}

TEST_F(DeepSpeed, LossScale) {
  apply(R"({"fp16": {"enabled": true, "loss_scale": 0, "loss_scale_window": 5e2,
                     "initial_scale_power": 12, "hysteresis": 3, "min_loss_scale": 0.5,
                     "consecutive_hysteresis": true}})");
  EXPECT_EQ(o_.step.dtype, f16);
  auto scaling = o_.step.scaling();
  EXPECT_EQ(scaling.kind, optim::LossScaleOptions::Kind::dynamic);
  EXPECT_EQ(scaling.initial, 4096);
  EXPECT_EQ(scaling.window, 500);
  EXPECT_EQ(scaling.hysteresis, 3);
  EXPECT_EQ(scaling.minimum, 0.5);
  EXPECT_EQ(scaling.refill, optim::LossScaleOptions::Refill::on_good_step);
  apply(R"({"fp16": {"enabled": true, "loss_scale": 128}})");
  EXPECT_EQ(o_.step.scaling().initial, 128);
  EXPECT_EQ(o_.step.scaling().kind, optim::LossScaleOptions::Kind::fixed);
}

TEST_F(DeepSpeed, LossScalesThatAreNone) {
  auto fp16 = [&](const std::string& key) {
    return refused(R"({"fp16": {"enabled": true, )" + key + "}}");
  };
  EXPECT_EQ(fp16(R"("hysteresis": 0)"),
            "ds.json: fp16.hysteresis: `0`; expected a whole number in [1, 2147483647]");
  EXPECT_EQ(fp16(R"("loss_scale_window": "many")"),
            "ds.json: fp16.loss_scale_window: `\"many\"`; expected a whole number in [1, "
            "2147483647]");
  EXPECT_TRUE(says(fp16(R"("initial_scale_power": 400)"), "fp16.initial_scale_power: `2.58"));
  EXPECT_EQ(fp16(R"("fp16_master_weights_and_grads": true)"),
            "ds.json: fp16.fp16_master_weights_and_grads is true; expected false: master weights "
            "and gradients are fp32");
  refuses(R"({"fp16": {"enabled": 1}})", ": fp16.enabled is 1; expected true, false or \"auto\"");
  refuses(R"({"fp16": {"enabled": true}, "bf16": {"enabled": true}})",
          ": fp16.enabled and bf16.enabled are true; expected one of them");
}

TEST_F(DeepSpeed, Precision) {
  apply(R"({"bf16": {"enabled": true}, "fp16": {"enabled": false, "loss_scale": 128}})");
  EXPECT_EQ(o_.step.dtype, bf16);
  EXPECT_EQ(o_.step.loss_scale, 0) << "not for bf16";
  apply(R"({"fp16": {"enabled": false}})");
  EXPECT_EQ(o_.step.dtype, f32);
  o_.step.dtype = bf16;
  apply(R"({"bf16": {"enabled": "auto"}, "fp16": {"enabled": false}})");
  EXPECT_EQ(o_.step.dtype, bf16) << "as the flags say";
  apply(R"({"zero_optimization": {"stage": 1}})");
  EXPECT_EQ(o_.step.dtype, bf16);
}

TEST_F(DeepSpeed, OptimizerWithDeepSpeedsDefaults) {
  apply(R"({"optimizer": {"type": "Adam", "params": {"lr": 3e-5}}})");
  EXPECT_EQ(o_.lr.peak, 3e-5);
  EXPECT_EQ(o_.step.adamw.beta1, 0.9);
  EXPECT_EQ(o_.step.adamw.beta2, 0.999);
  EXPECT_EQ(o_.step.adamw.weight_decay, 0);
  apply(R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5, "betas": [0.8, 0.95],
            "eps": 1e-6, "weight_decay": 3e-7, "torch_adam": true}}})");
  EXPECT_EQ(o_.step.adamw.beta1, 0.8);
  EXPECT_EQ(o_.step.adamw.beta2, 0.95);
  EXPECT_EQ(o_.step.adamw.eps, 1e-6);
  EXPECT_EQ(o_.step.adamw.weight_decay, 3e-7);
  apply(R"({"optimizer": {"type": "lion", "params": {"lr": 1e-4}}})");
  EXPECT_EQ(o_.step.algorithm, Algorithm::lion);
  EXPECT_EQ(o_.step.adamw.beta2, 0.99);
}

TEST_F(DeepSpeed, OptimizersThatAreNotThere) {
  auto optimizer = [&](const std::string& rest) {
    return refused(R"({"optimizer": {"type": )" + rest + "}");
  };
  EXPECT_EQ(optimizer(R"("Lamb"})"),
            "ds.json: optimizer.type is Lamb; expected AdamW, Adam, Lion or Muon");
  EXPECT_EQ(optimizer(R"("Adam", "params": {"adam_w_mode": false}})"),
            "ds.json: optimizer.params.adam_w_mode is false; expected true: there is AdamW, with "
            "decoupled weight decay");
  EXPECT_EQ(optimizer(R"("Adam", "params": {"betas": [0.9]}})"),
            "ds.json: optimizer.params.betas is not two numbers");
  EXPECT_EQ(
      optimizer(R"("Adam", "params": {"momentum": 0.9}})"),
      "ds.json: optimizer.params.momentum does not go with the other keys here; leave it out");
  o_.step.optimizer = [](auto&) { return nullptr; };
  EXPECT_EQ(optimizer(R"("AdamW", "params": {"lr": 1}})"),
            "ds.json: optimizer.type is AdamW; tiny has an optimizer of its own: leave `optimizer` "
            "out");
}

TEST_F(DeepSpeed, Schedules) {
  using Decay = optim::Schedule::Decay;
  using Warmup = optim::Schedule::Warmup;
  std::string notes = apply(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
                                "scheduler": {"type": "WarmupDecayLR", "params": {
      "warmup_min_lr": 0, "warmup_max_lr": 3e-5, "warmup_num_steps": 500, "total_num_steps": 1e4,
      "warmup_type": "linear"}}})");
  EXPECT_EQ(o_.lr.decay, Decay::linear);
  EXPECT_EQ(o_.lr.shape, Warmup::linear);
  EXPECT_EQ(o_.lr.peak, 3e-5);
  EXPECT_EQ(o_.lr.low, 0);
  EXPECT_EQ(o_.lr.warmup, 500);
  EXPECT_EQ(o_.steps, 10000);
  EXPECT_TRUE(says(notes, "no effect: optimizer.params.lr: the scheduler's warmup_max_lr"));
  o_ = {};
  apply(R"({"scheduler": {"type": "WarmupLR", "params": {}}})");
  EXPECT_EQ(o_.lr.decay, Decay::constant);
  EXPECT_EQ(o_.lr.shape, Warmup::log);
  EXPECT_EQ(o_.lr.peak, TrainOptions().lr.peak);
  EXPECT_EQ(o_.lr.warmup, 1000);
  apply(R"({"optimizer": {"type": "AdamW", "params": {"lr": 1e-2}},
            "scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.5,
                          "total_num_steps": 2000}}})");
  EXPECT_EQ(o_.lr.decay, Decay::cosine);
  EXPECT_EQ(o_.lr.peak, 1e-2);
  EXPECT_EQ(o_.lr.low, 5e-3);
}

// Where each scheduler of DeepSpeed 0.19.8 has its rate from.
TEST_F(DeepSpeed, SchedulesWithoutWarmupMaxLr) {
  auto rate = [&](const char* type, const std::string& rest, const std::string& note) {
    o_ = {};
    std::string notes = apply(fmt::format(
        R"({{"optimizer": {{"type": "AdamW", "params": {{"lr": 5e-5}}}},
             "scheduler": {{"type": "{}", "params": {{"warmup_num_steps": 4{}}}}}}})",
        type, rest));
    EXPECT_TRUE(says(notes, note));
    return o_.lr.peak;
  };
  EXPECT_EQ(rate("WarmupLR", "",
                 "WarmupLR has no warmup_max_lr: it rises to --lr 5e-05, the optimizer's\n"),
            5e-5);
  EXPECT_EQ(rate("WarmupLR", R"(, "warmup_max_lr": null)", "rises to --lr 5e-05"), 5e-5);
  EXPECT_EQ(rate("WarmupLR", R"(, "warmup_max_lr": 2e-4)", "no effect: optimizer.params.lr: "),
            2e-4);
  EXPECT_EQ(rate("WarmupLR", R"(, "warmup_max_lr": "2e-4")", "no effect: optimizer.params.lr: "),
            2e-4);
  EXPECT_EQ(rate("WarmupLR", R"(, "warmup_max_lr": "auto")", "sets --"), 5e-5);
  EXPECT_EQ(rate("WarmupDecayLR", "", "it rises to --lr 0.001, DeepSpeed's default\n"), 1e-3);
  EXPECT_EQ(rate("WarmupDecayLR", "", "no effect: optimizer.params.lr: "), 1e-3);
  EXPECT_EQ(rate("WarmupCosineLR", "", "--lr 5e-05"), 5e-5);
  EXPECT_DOUBLE_EQ(o_.lr.low, 5e-9);
  o_ = {};
  o_.lr.peak = 0.25;
  EXPECT_TRUE(says(apply(R"({"scheduler": {"type": "WarmupLR"}})"), "rises to --lr 0.25,"));
  EXPECT_EQ(o_.lr.peak, 0.25) << "of the flag";
  refuses(R"({"scheduler": {"type": "WarmupLR", "params": {"cos_min_ratio": 0.1}}})",
          ": scheduler.params.cos_min_ratio does not go with the other keys here; leave it "
          "out");
}

TEST_F(DeepSpeed, SchedulesThatAreNotThere) {
  auto scheduler = [&](const std::string& type, const std::string& params) {
    return refused(
        fmt::format(R"({{"scheduler": {{"type": "{}", "params": {{{}}}}}}})", type, params));
  };
  EXPECT_EQ(scheduler("OneCycle", ""),
            "ds.json: scheduler.type is OneCycle; expected WarmupLR, WarmupDecayLR or "
            "WarmupCosineLR");
  EXPECT_EQ(
      scheduler("WarmupLR", R"("warmup_min_lr": 1e-6)"),
      "ds.json: scheduler.params.warmup_min_lr is 1e-06; expected 0: the warm-up rises from 0");
  refuses(R"({"optimizer": {"type": "AdamW", "params": {"lr": "fast"}},
                        "scheduler": {"type": "WarmupCosineLR"}})",
          ": optimizer.params.lr: `\"fast\"`; expected a number, 0 or more");
  EXPECT_EQ(scheduler("WarmupLR", R"("warmup_type": "cubic")"),
            "ds.json: scheduler.params.warmup_type: `cubic`; expected one of: linear, log");
}

TEST_F(DeepSpeed, Offload) {
  auto zero = [&](const std::string& blocks) {
    return fmt::format(R"({{"zero_optimization": {{"stage": 3, {}}}}})", blocks);
  };
  std::string notes = apply(zero(R"("offload_param": {"device": "nvme", "nvme_path": "/nvme"},
                                    "offload_optimizer": {"device": "none"})"));
  EXPECT_EQ(o_.step.zero, Zero::parameters);
  EXPECT_EQ(o_.step.offload, Offloaded::parameters);
  EXPECT_EQ(o_.step.offload_dir, "/nvme");
  EXPECT_TRUE(says(notes, "offload_param takes the optimizer state along"));
  o_ = {};
  apply(zero(R"("offload_optimizer": {"device": "none"})"));
  EXPECT_EQ(o_.step.offload, Offloaded::nothing);
  const std::string key = "ds.json: zero_optimization.offload_";
  EXPECT_EQ(refused(zero(R"("offload_optimizer": {"device": "nvme"})")),
            key + "optimizer.nvme_path is not given; expected a directory");
  EXPECT_EQ(refused(zero(R"("offload_optimizer": {"device": "cpu"},
                            "offload_param": {"device": "nvme", "nvme_path": "/nvme"})")),
            key + "param goes to /nvme, offload_optimizer to cpu; expected one place");
  EXPECT_EQ(refused(zero(R"("offload_param": {"device": "gpu"})")),
            key + "param.device is gpu; expected none, cpu or nvme");
  EXPECT_EQ(refused(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
            key +
                "param.device offloads with zero_optimization.stage 2; expected \"stage\": 3, or "
                "offload_optimizer in place of offload_param");
  refuses(R"({"zero_optimization": {"stage": 4}})",
          ": zero_optimization.stage: `4`; expected one of: 0, 1, 2, 3");
}

}  // namespace triax::parallel::deepspeed_test
