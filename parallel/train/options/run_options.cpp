#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {
namespace {

Settings scaler_settings(optim::LossScaleOptions& o) {
  using Refill = optim::LossScaleOptions::Refill;
  double least = 0x1p-24;  // the smallest number of fp16
  return SettingGroup("Run", OnResume::say)
      .add("initial-loss-scale", "X", "dynamic loss scale at the start", &o.initial,
           {.range = {least, 1e14}})
      .add("min-loss-scale", "X", "smallest dynamic loss scale", &o.minimum,
           {.range = {least, 1e14}, .deepspeed = "fp16.min_loss_scale"})
      .add("loss-scale-window", "N", "finite steps in a row after which it doubles", &o.window,
           {.range = {1, huge}, .deepspeed = "fp16.loss_scale_window"})
      .add("hysteresis", "N", "the scale halves at the N-th overflow and every later one",
           &o.hysteresis, {.range = {1, huge}, .deepspeed = "fp16.hysteresis"})
      .add("hysteresis-refill", "growth|good-step",
           "when that count resets: when the scale doubles, or after every finite step",
           choice(o.refill, {{"growth", Refill::on_growth}, {"good-step", Refill::on_good_step}}));
}

Settings precision_settings(StepOptions& s) {
  return SettingGroup("Run", OnResume::say, {.parity = true})
      .add("precision|dtype|bf16|fp16|fp32|mixed-precision", "fp32|bf16|fp16",
           "of weights and activations; weight gradients and optimizer state stay fp32",
           choice(s.dtype, {{"fp32", f32}, {"bf16", bf16}, {"fp16", f16}}),
           {.on_resume = OnResume::ask, .plan = InPlan::sought})
      .add("loss-scale", "X", "fp16 loss scale; 0: dynamic", &s.loss_scale,
           {.range = {0, 1e14}, .deepspeed = "fp16.loss_scale"})
      .add(scaler_settings(s.dynamic_scale));
}

void check_loss_scale(const StepOptions& s) {
  check_input(s.dtype == f16 || s.loss_scale == 0, Exit::config,
              "loss-scale={} with precision={}\n  Only fp16 has gradients that need it. Leave it "
              "out, or add --precision fp16.",
              s.loss_scale, s.dtype == bf16 ? "bf16" : "fp32");
  check_input(s.dynamic_scale.minimum <= s.dynamic_scale.initial, Exit::config,
              "min-loss-scale={} is more than initial-loss-scale={}\n"
              "  The loss scale never falls below the one and begins at the other.",
              s.dynamic_scale.minimum, s.dynamic_scale.initial);
}

/// Refuses what a CUDA graph cannot capture: work of the host, and layers that wait for each other.
void check_graph(const TrainOptions& o) {
  const StepOptions& s = o.step;
  if (!s.graph) return;
  auto without = [](bool fine, const std::string& flag, const char* why) {
    check_input(fine, Exit::config, "graph with {}\n  {}. Leave --graph out, or change {}.", flag,
                why, flag);
  };
  without(o.launch.device != "cpu", "device=cpu", "Only GPUs have graphs");
  without(s.mesh.pp == 1, fmt::format("pp={}", s.mesh.pp), "Pipeline stages wait for each other");
  without(s.zero < Zero::parameters, fmt::format("zero={}", int(s.zero)),
          "ZeRO-3 frees weights and gathers them again");
  without(s.offload == Offloaded::nothing, fmt::format("offload={}", name_of(s.offload)),
          "The host updates the weights");
  without(!s.optimizer, "an optimizer of the program's own", "It may need the host");
  without(s.algorithm != Algorithm::muon, "optimizer=muon",
          "Its products have not been captured yet");
  without(s.average == 0, fmt::format("average={}", s.average),
          "The rate of the average changes with the step");
  without(!o.ledger, "ledger", "It counts what the host asks for, which is once");
}

void check_profile(const TrainOptions& o) {
  if (o.profile.empty()) return;
  check_input(!o.step.graph, Exit::config,
              "profile with graph\n  A replayed step is one launch, without layers or operations. "
              "Leave --profile or --graph out.");
  check_input(parse_step_range(o.profile).last <= o.steps, Exit::config,
              "profile={} with steps={}\n  The run ends before. Valid: steps from 1 to {}.",
              o.profile, o.steps, o.steps);
}

/// Throws Error 78 for --check-replicas without data-parallel replicas that hold the same optimizer
/// state (dp 1, or ZeRO), or where ranks need not have equal bits.
void check_replicated(const TrainOptions& o) {
  const StepOptions& s = o.step;
  check_input(o.check_replicas == 0 || s.zero == Zero::off, Exit::config,
              "check-replicas={} with zero={}; expected data-parallel replicas that hold the same "
              "optimizer state\n  Leave it out, or use --zero 0.",
              o.check_replicas, int(s.zero));
  check_input(o.check_replicas == 0 || s.mesh.ranks_along(Cuts::weights) == 1, Exit::config,
              "check-replicas={} with {}, whose ranks train weights of their own\n  Leave it out.",
              o.check_replicas, str(s.mesh));
  check_input(o.check_replicas == 0 || s.mesh.tp == 1 || !o.launch.nondeterministic, Exit::config,
              "check-replicas={} with tp={} and nondeterministic\n  Tensor-parallel ranks compute "
              "some gradients alike, bit for bit only without --nondeterministic.",
              o.check_replicas, s.mesh.tp);
}

}  // namespace

Settings run_settings(TrainOptions& o) {
  StepOptions& s = o.step;
  return SettingGroup("Run", OnResume::apart)
      .add("config", "FILE", "TOML file whose keys are these flags; flags win over it", &o.config,
           {.shown = "none", .saved = false, .key = false, .plan = InPlan::taken, .parity = true})
      .add("deepspeed|deepspeed-config|ds-config", "FILE",
           "DeepSpeed's JSON (ds_config.json), whose keys set these flags; it wins over --config, "
           "flags win over it",
           &o.deepspeed, {.shown = "none", .saved = false, .key = false})
      .add("out|out-dir|output|output-dir|save", "DIR",
           "run directory: configuration, metrics, checkpoints", &o.out,
           {.shown = "runs/<date>-<name>", .derived = true, .saved = false})
      .add("metrics", "FILE", "one JSON object per step", &o.metrics,
           {.shown = "OUT/metrics.jsonl", .derived = true, .saved = false})
      .add("profile", "[STEPS]",
           "trace what every rank does in these steps, such as 3 or 3-5 (alone: 3-5), in "
           "OUT/trace.json for ui.perfetto.dev",
           &o.profile, {.shown = "none", .alone = "3-5", .saved = false})
      .add("tensorboard", "", "also write event files for TensorBoard into OUT", &o.tensorboard,
           {.deepspeed = "tensorboard.enabled"})
      .add("ledger", "", "print communication volume and memory by kind at the end", &o.ledger)
      .add("val-every|eval-every|eval-interval|eval-steps", "N",
           "steps between validations; 0: only at the end", &o.val_every)
      .add("check-replicas", "N",
           "compare what data-parallel replicas hold, bit for bit, every N steps and before each "
           "checkpoint; 0: never",
           &o.check_replicas)
      .add("certify", "[N]",
           "write hashes of all tensors into OUT/certificate.jsonl every N steps (alone: 1), for "
           "triax-bisect-runs; 0: never",
           &o.certify, {.alone = "1"})
      .add("workers", "N", "threads per rank that load batches ahead of the step; 0: none",
           &o.workers, {.range = {0, 64}, .parity = true})
      .add("seed", "N", "of weights, dropout and the order of samples", &s.seed,
           {.on_resume = OnResume::ask, .parity = true})
      .add("graph|cuda-graph|cuda-graphs", "", "capture the step as a CUDA graph and replay it",
           &s.graph)
      .add(precision_settings(s));
}

StepRange parse_step_range(const std::string& text) {
  StepRange r;
  size_t dash = text.find('-');
  check_input(parse_number(text.substr(0, dash), r.first) &&
                  parse_number(text.substr(dash + 1), r.last) && r.first >= 1 && r.first <= r.last,
              Exit::config,
              "profile `{}`; expected a step or the first and the last of several, like "
              "3 or 3-5",
              printable(text));
  return r;
}

void check_run(const TrainOptions& o) {
  check_loss_scale(o.step);
  check_profile(o);
  check_graph(o);
  check_replicated(o);
}

optim::LossScaleOptions StepOptions::scaling() const {
  using Kind = optim::LossScaleOptions::Kind;
  if (dtype != f16) return {.kind = Kind::fixed, .initial = 1};
  if (loss_scale > 0) return {.kind = Kind::fixed, .initial = loss_scale, .minimum = loss_scale};
  return dynamic_scale;
}

}  // namespace triax::parallel
