// DeepSpeed's JSON: its batch, who wins over whom, and files that are none.
#include <gtest/gtest.h>

#include "tests/parallel/program/deepspeed.h"
#include "triax/core/error.h"
#include "triax/parallel/program/deepspeed/reader.h"

namespace triax::parallel::deepspeed_batch_test {

using namespace test;
using DeepSpeedBatch = DeepSpeedFixture;

TEST_F(DeepSpeedBatch, TheBatchEquation) {
  auto batch = [&](const std::string& total, const std::string& micro, const std::string& steps) {
    o_ = {};
    std::string text = "{";
    auto add = [&](const char* key, const std::string& size) {
      if (!size.empty()) text += fmt::format("{}\"{}\": {}", text == "{" ? "" : ", ", key, size);
    };
    add("train_batch_size", total);
    add("train_micro_batch_size_per_gpu", micro);
    add("gradient_accumulation_steps", steps);
    return text + "}";
  };
  auto sizes = [&](const std::string& text) {
    apply(text);
    return std::pair(o_.step.micro_batch, o_.step.global_batch);
  };
  using Sizes = std::pair<int64_t, int64_t>;
  EXPECT_EQ(sizes(batch("48", "4", "6")), Sizes(4, 48));
  EXPECT_EQ(sizes(batch("", "4", "6")), Sizes(4, 48));
  EXPECT_EQ(sizes(batch("48", "", "6")), Sizes(4, 48));
  EXPECT_EQ(sizes(batch("48", "4", "")), Sizes(4, 48));
  EXPECT_EQ(sizes(batch("48", "\"auto\"", "\"auto\"")), Sizes(24, 48));
  EXPECT_EQ(sizes(batch("", "4", "")), Sizes(4, 0));
  EXPECT_EQ(sizes(batch("", "", "3")), Sizes(12, 72));
  refuses(batch("50", "4", "6"),
          ": train_batch_size is 50; expected train_micro_batch_size_per_gpu 4 x "
          "gradient_accumulation_steps 6 x dp 2 = 48\n"
          "  Leave one of the three out: it follows from the others.");
  refuses(batch("49", "", ""),
          ": train_batch_size is 49; expected a multiple of gradient_accumulation_steps 1 "
          "x dp 2");
  refuses(batch("4.5", "", ""),
          ": train_batch_size is 4.5; expected a whole number, 1 or more, or \"auto\"");
  refuses(batch("", "2147483647", "2147483647"),
          ": gradient_accumulation_steps: `9223372028264841216`; expected a whole number in "
          "[0, 2147483647]");
}

TEST_F(DeepSpeedBatch, FlagsWin) {
  o_.lr.peak = 0.5, o_.step.micro_batch = 8, o_.step.global_batch = 64;
  std::string notes = apply(R"({"optimizer": {"type": "AdamW", "params": {"lr": 3e-5}},
      "train_batch_size": 48, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 6,
      "gradient_clipping": 2e0})",
                            {"lr", "micro-batch", "global-batch"});
  EXPECT_EQ(o_.lr.peak, 0.5);
  EXPECT_EQ(o_.step.micro_batch, 8);
  EXPECT_EQ(o_.step.global_batch, 64);
  EXPECT_EQ(o_.step.clip, 2);
  EXPECT_TRUE(says(notes,
                   "flags win over optimizer.params.lr, train_batch_size, "
                   "train_micro_batch_size_per_gpu, gradient_accumulation_steps\n"));
}

TEST_F(DeepSpeedBatch, WhatIsOffMayStay) {
  std::string notes = apply(R"({"amp": {"enabled": false, "opt_level": "O1"}, "prescale_gradients":
      false, "gradient_predivide_factor": 1.0, "flops_profiler": {"enabled": true, "top_modules": 1},
      "zero_optimization": {}, "communication_data_type": null})");
  for (const char* key :
       {"amp.enabled", "amp.opt_level", "prescale_gradients", "gradient_predivide_factor",
        "flops_profiler.enabled", "flops_profiler.top_modules", "zero_optimization: it is empty"})
    EXPECT_TRUE(says(notes, key));
  refuses(R"({"amp": {"enabled": true}})",
          ": amp.enabled is true; expected false: triax has no amp");
  refuses(R"({"gradient_predivide_factor": 2})",
          ": gradient_predivide_factor is 2; expected 1: gradients are divided after "
          "their sum");
}

TEST_F(DeepSpeedBatch, DtypeOfReductions) {
  apply(R"({"communication_data_type": "bf16"})");
  EXPECT_EQ(o_.step.reduce_dtype, bf16);
  apply(R"({"communication_data_type": "fp32"})");
  EXPECT_EQ(o_.step.reduce_dtype, f32);
  EXPECT_NE(refused(R"({"communication_data_type": "fp16"})").find("fp16"), std::string::npos);
}

TEST_F(DeepSpeedBatch, KeysThatNobodyKnows) {
  refuses(R"({"zero_optimization": {"stagee": 2}})",
          ": unknown key `zero_optimization.stagee`; the nearest is "
          "`zero_optimization.stage`");
  refuses(R"({"sky": 2})", ": unknown key `sky`; triax has nothing for it: leave it out");
}

TEST_F(DeepSpeedBatch, AllThatIsWrongIsSaidAtOnce) {
  refuses(R"({"sky": 2, "fp16": {"enabled": 1}, "optimizer": {"type": "Lamb", "params":
      {"lr": 1, "betas": [0.9, 0.99]}}, "gradient_clipping": "much", "amp": {"enabled": true},
      "zero_optimization": {"stagee": 2}})",
          ": amp.enabled is true; expected false: triax has no amp\n"
          "ds.json: fp16.enabled is 1; expected true, false or \"auto\"\n"
          "ds.json: optimizer.type is Lamb; expected AdamW, Adam, Lion or Muon\n"
          "ds.json: unknown key `sky`; triax has nothing for it: leave it out\n"
          "ds.json: unknown key `zero_optimization.stagee`; the nearest is "
          "`zero_optimization.stage`\n"
          "ds.json: gradient_clipping: `\"much\"`; expected a number, 0 or more");
}

TEST_F(DeepSpeedBatch, OldForms) {
  apply(R"({"zero_optimization": true, "allgather_size": 500000000})");
  EXPECT_EQ(o_.step.zero, Zero::optimizer) << "as DeepSpeed reads it";
  apply(R"({"zero_optimization": false})");
  EXPECT_EQ(o_.step.zero, Zero::off);
  apply(R"({"bfloat16": {"enabled": true}})");
  EXPECT_EQ(o_.step.dtype, bf16);
  apply(R"({"fp16": true})");
  EXPECT_EQ(o_.step.dtype, f16);
  for (const char* key : {"activation_checkpointing", "wandb", "amp", "optimizer"})
    EXPECT_TRUE(
        says(apply(fmt::format(R"({{"{}": false}})", key)), fmt::format("no effect: {}", key)));
  refuses(R"({"amp": true})", ": amp.enabled is true; expected false: triax has no amp");
  refuses(R"({"activation_checkpointing": true})",
          ": activation_checkpointing is true; expected a block: "
          "\"activation_checkpointing\": {\"partition_activations\": ...}");
  refuses(R"({"zero_optimization": 2})",
          ": zero_optimization is 2; expected a block: \"zero_optimization\": {\"stage\": "
          "...}");
  for (const char* value : {"\"cpu\"", "true", "1"})
    EXPECT_EQ(
        refused(fmt::format(R"({{"zero_optimization": {{"offload_optimizer": {}}}}})", value)),
        fmt::format("ds.json: zero_optimization.offload_optimizer is {}; expected a block: "
                    "\"offload_optimizer\": {{\"device\": ...}}",
                    value));
  refuses(R"({"zero_optimization": {"cpu_offload": true}})",
          ": zero_optimization.cpu_offload is true; expected false: write "
          "offload_optimizer: {\"device\": \"cpu\"}");
}

TEST_F(DeepSpeedBatch, NumbersInQuotesAreNumbers) {
  apply(
      R"({"zero_optimization": {"stage": "2"}, "gradient_clipping": "1.5", "train_batch_size": "48",
      "fp16": {"enabled": "true", "loss_scale_window": "5e2", "initial_scale_power": "12"},
      "optimizer": {"type": "AdamW", "params": {"lr": "3e-5", "betas": ["0.8", 0.95]}},
      "prescale_gradients": "False", "gradient_predivide_factor": "1.0"})");
  EXPECT_EQ(o_.step.zero, Zero::gradients);
  EXPECT_EQ(o_.step.clip, 1.5);
  EXPECT_EQ(o_.step.global_batch, 48);
  EXPECT_EQ(o_.step.scaling().window, 500);
  EXPECT_EQ(o_.step.scaling().initial, 4096);
  EXPECT_EQ(o_.lr.peak, 3e-5);
  EXPECT_EQ(o_.step.adamw.beta1, 0.8);
  for (const char* value : {"\"nan\"", "\"inf\"", "\"1.0 \"", "\"\"", "true"})
    EXPECT_TRUE(says(refused(fmt::format(R"({{"gradient_clipping": {}}})", value)),
                     fmt::format("gradient_clipping: `{}`; expected a number", value)));
  refuses(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": 5}}})",
          ": zero_optimization.offload_param.device is 5; expected a string");
}

TEST_F(DeepSpeedBatch, EventFilesAsTheJsonSays) {
  std::string notes = apply(R"({"tensorboard": {"enabled": true, "output_path": "logs"}})");
  EXPECT_TRUE(o_.tensorboard);
  EXPECT_TRUE(says(notes, "sets --tensorboard true"));
  EXPECT_TRUE(says(notes, "no effect: tensorboard.output_path: event files"));
  apply(R"({"tensorboard": {"enabled": false}})");
  EXPECT_FALSE(o_.tensorboard);
}

TEST_F(DeepSpeedBatch, NotesSayWhichValueIsMeant) {
  std::string notes = apply(R"({"prescale_gradients": false, "gradient_predivide_factor": 1.0,
      "amp": {"enabled": false}, "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0}}})");
  EXPECT_TRUE(
      says(notes, "no effect: prescale_gradients: false is the only value that triax takes\n"));
  EXPECT_TRUE(
      says(notes, "no effect: gradient_predivide_factor: 1 is the only value that triax takes\n"));
  EXPECT_TRUE(says(
      notes, "no effect: scheduler.params.warmup_min_lr: 0 is the only value that triax takes\n"));
  EXPECT_TRUE(says(notes, "no effect: amp.enabled: triax has no amp\n"));
  EXPECT_TRUE(says(apply(R"({"wandb": {"enabled": true}})"), "triax-relay sends to W&B"));
}

TEST_F(DeepSpeedBatch, ReadsCommentsAndKeysWithoutQuotes) {
  apply(
      "# comments of three kinds\n"
      "{train_batch_size: 48, // two, \"quoted\"\n"
      "/* three\n */ gradient_clipping: 0.5,\n"
      "\"optimizer\": {\n"
      "  \"type\": \"AdamW\",\n"
      "  params : {\"lr\": 3e-5, betas: [0.8, 0.95,],} # last, }\n"
      "},}\n");
  EXPECT_EQ(o_.step.global_batch, 48);
  EXPECT_EQ(o_.step.clip, 0.5);
  EXPECT_EQ(o_.step.algorithm, Algorithm::adamw);
  EXPECT_EQ(o_.step.adamw.beta2, 0.95);
  apply(R"({"train_batch_size": 32,})");
  EXPECT_EQ(o_.step.global_batch, 32);
  apply(
      R"({"train_batch_size": 16, "tensorboard": {"job_name": "a, // \" {b: #", "enabled": false}})");
  EXPECT_EQ(o_.step.global_batch, 16);
}

TEST_F(DeepSpeedBatch, FilesThatAreNone) {
  auto is_none = [&](const std::string& text, const std::string& why) {
    std::string got = refused(text);
    EXPECT_TRUE(says(got, why)) << got;
    EXPECT_TRUE(
        got.ends_with("\n  --deepspeed reads DeepSpeed's JSON, with comments and keys without "
                      "quotes; TOML is read by --config FILE."))
        << got;
  };
  is_none("steps = 3\n", " does not start with an open brace");
  is_none("// one\n{\n  a: 1,\n  type: AdamW }\n", ", line 4");
  is_none("{\r\n\"a\": [1,\r\n2,,]}", ", line 3: a comma before ]");
  is_none("/*\n*/{\n\"a\": \"\\ud800\"}", ", line 3");
  is_none(std::string("{\n\"a\": \"\xFF\"}"), ", line 2");
  for (const char* text : {"/* no end {", "{\"a\": \"no end", "{\"a\": \"no end\\", "/", "/*", "#"})
    is_none(text, "ds.json");
  is_none("{a: " + std::string(100'000, '['), "nested");
  is_none(R"({"a": 1/**/2})", ", line 1");
  is_none("{" + std::string(1'000'000, ' ') + "x}", "ds.json");  // in no time
  is_none("[1]", " does not start with an open brace");
  is_none(R"({"a": 1, "a": 2})", ", a is given twice");
  Settings settings = train_settings(o_);
  expect_error(
      [&] {
        apply_deepspeed({dir_ / "no.json", "tiny", settings, {}, 1});
      },
      {"no.json"}, Exit::not_found);
}

}  // namespace triax::parallel::deepspeed_batch_test
