// DeepSpeed's JSON: its batch, who wins over whom, and files that are none.
#include "tests/parallel/program/deepspeed.h"

namespace triax::parallel {
namespace {

using test::says;
using DeepSpeedBatch = test::DeepSpeedFixture;

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
  EXPECT_EQ(refused(batch("50", "4", "6")),
            "ds.json: train_batch_size is 50; expected train_micro_batch_size_per_gpu 4 x "
            "gradient_accumulation_steps 6 x dp 2 = 48\n"
            "  Leave one of the three out: it follows from the others.");
  EXPECT_EQ(refused(batch("49", "", "")),
            "ds.json: train_batch_size is 49; expected a multiple of gradient_accumulation_steps 1 "
            "x dp 2");
  EXPECT_EQ(refused(batch("4.5", "", "")),
            "ds.json: train_batch_size is 4.5; expected a whole number, 1 or more, or \"auto\"");
  EXPECT_EQ(
      refused(batch("", "2147483647", "2147483647")),
      "ds.json: gradient_accumulation_steps: `9223372028264841216`; expected a whole number in "
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
  EXPECT_EQ(refused(R"({"amp": {"enabled": true}})"),
            "ds.json: amp.enabled is true; expected false: triax has no amp");
  EXPECT_EQ(refused(R"({"gradient_predivide_factor": 2})"),
            "ds.json: gradient_predivide_factor is 2; expected 1: gradients are divided after "
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
  EXPECT_EQ(refused(R"({"zero_optimization": {"stagee": 2}})"),
            "ds.json: unknown key `zero_optimization.stagee`; the nearest is "
            "`zero_optimization.stage`");
  EXPECT_EQ(refused(R"({"sky": 2})"),
            "ds.json: unknown key `sky`; triax has nothing for it: leave it out");
}

TEST_F(DeepSpeedBatch, FilesThatAreNone) {
  const std::string cure =
      "\n  --deepspeed reads DeepSpeed's JSON, which may have // comments; TOML is read by "
      "--config "
      "FILE.";
  EXPECT_EQ(refused("steps = 3\n"), "ds.json, not JSON at byte 1, line 1" + cure);
  EXPECT_EQ(refused("{\n  \"a\": 1,\n}\n"), "ds.json, not JSON at byte 13, line 3" + cure);
  EXPECT_EQ(refused("[1]"), "ds.json, the configuration is not an object" + cure);
  EXPECT_EQ(refused(R"({"a": 1, "a": 2})"), "ds.json, a is given twice" + cure);
  Settings settings = train_settings(o_);
  test::expect_error(
      [&] {
        apply_deepspeed({dir_ / "no.json", "tiny", settings, {}, 1});
      },
      {"no.json"}, Exit::not_found);
}

TEST_F(DeepSpeedBatch, LoggingWarmUp) {
  apply(
      R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1, "warmup_num_steps": 8}}})");
  resolve(o_, 1);
  EXPECT_EQ(o_.lr.at(1), 0);
  EXPECT_DOUBLE_EQ(o_.lr.at(2), 1 / 3.);
  EXPECT_DOUBLE_EQ(o_.lr.at(8), 1);
  EXPECT_EQ(o_.lr.at(2000), 1);
}

}  // namespace
}  // namespace triax::parallel
