#include <algorithm>
#include <utility>

#include "triax/core/check.h"
#include "triax/optim/averaged.h"
#include "triax/optim/lion.h"
#include "triax/optim/muon.h"
#include "triax/parallel/train/options/groups.h"
#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {
namespace {

constexpr const char* optimizer_heading = "Batch and optimizer";

Settings rate_settings(optim::Schedule& lr) {
  using Decay = optim::Schedule::Decay;
  using Warmup = optim::Schedule::Warmup;
  SettingGroup group(optimizer_heading, OnResume::say, {.parity = true});
  return group
      .add("lr|learning-rate", "X", "learning rate after warm-up", &lr.peak,
           {.deepspeed = "optimizer.params.lr scheduler.params.warmup_max_lr"})
      .add("min-lr|min-learning-rate", "X", "learning rate at the end of the schedule, if it falls",
           &lr.low, {.range = {-1}, .shown = "lr / 10", .derived = true})
      .add("lr-schedule|lr-decay-style|lr-scheduler|lr-scheduler-type|decay-lr",
           "cosine|linear|constant",
           "learning rate after warm-up: falls to --min-lr along a cosine or a line, or stays",
           choice(lr.decay, {{"cosine", Decay::cosine},
                             {"linear", Decay::linear},
                             {"constant", Decay::constant}}))
      .add("warmup|warmup-steps|warmup-iters|lr-warmup-iters", "N",
           "steps of learning-rate warm-up from 0, at most those of the run", &lr.warmup,
           {.range = {-1},
            .shown = "100, or half of fewer than 200 steps",
            .derived = true,
            .deepspeed = "scheduler.params.warmup_num_steps"})
      .add("warmup-shape", "linear|log",
           "share of the learning rate in warm-up step k: k / N, or log k / log N",
           choice(lr.shape, {{"linear", Warmup::linear}, {"log", Warmup::log}}),
           {.deepspeed = "scheduler.params.warmup_type"});
}

Settings rule_settings(StepOptions& s) {
  SettingGroup group(optimizer_heading, OnResume::say, {.parity = true});
  return group
      .add("optimizer", "adamw|lion|muon",
           "update rule; muon: of hidden matrices, with AdamW for the rest",
           choice(
               s.algorithm,
               {{"adamw", Algorithm::adamw}, {"lion", Algorithm::lion}, {"muon", Algorithm::muon}}),
           {.on_resume = OnResume::refuse, .plan = InPlan::taken})
      .add("weight-decay|wd", "X", "decoupled weight decay, of matrices only",
           &s.adamw.weight_decay, {.deepspeed = "optimizer.params.weight_decay"})
      .add("beta1|adam-beta1", "X", "beta1 of AdamW and Lion", &s.adamw.beta1,
           {.range = {0, 1, true}})
      .add("beta2|adam-beta2", "X", "beta2 of AdamW and Lion", &s.adamw.beta2,
           {.range = {0, 1, true}})
      .add("eps|adam-eps|adam-epsilon|epsilon", "X", "epsilon of AdamW", &s.adamw.eps,
           {.range = {1e-30, 1}, .deepspeed = "optimizer.params.eps"});
}

void check_batch(const StepOptions& o) {
  int64_t unit = o.micro_batch * o.mesh.replicas();
  check_input(unit > 0 && o.global_batch > 0, Exit::config,
              "micro-batch={}, global-batch={}; expected at least 1", o.micro_batch,
              o.global_batch);
  if (o.global_batch % unit == 0) return;
  int64_t below = o.global_batch / unit * unit, above = below + unit;
  std::string replicas;
  for (const Axis& a : o.mesh.axes())
    if (any(a.cuts, Cuts::samples) && (a.size > 1 || a.name == "dp"))
      replicas += fmt::format(" x {} {}", a.name, a.size);
  fail(Exit::config,
       "global-batch={} is not a multiple of micro-batch {}{} = {}\n"
       "  Every replica accumulates the same number of whole micro-batches. Nearest valid: {}.",
       o.global_batch, o.micro_batch, replicas, unit,
       below == 0 ? fmt::format("{}", above) : fmt::format("{}, {}", below, above));
}

/// Checks options of Muon. Ranks that hold the same matrix orthogonalize the same gradient, each
/// for itself: with other bits their weights would drift.
void check_muon(const TrainOptions& o) {
  const StepOptions& s = o.step;
  if (s.optimizer || s.algorithm != Algorithm::muon) return;
  int ranks = s.mesh.data() * s.mesh.tp;
  check_input(
      ranks == 1 || !o.launch.nondeterministic, Exit::config,
      "optimizer=muon with nondeterministic and {} replicas\n  Each replica computes the update "
      "by products of its own, which have to have the same bits. Leave --nondeterministic "
      "out.",
      ranks);
}

template <class Optimizer, class Options> optim::MakeOptimizer maker(const Options& options) {
  return [options](const std::vector<optim::Slot>& slots) {
    return std::make_unique<Optimizer>(slots, options);
  };
}

/// Returns the optimizer that --optimizer names.
optim::MakeOptimizer built_in(const StepOptions& o) {
  optim::AdamWOptions adamw = o.adamw;
  adamw.offload = o.place_of(Offloaded::optimizer);
  if (o.algorithm == Algorithm::lion)
    return maker<optim::Lion>(optim::LionOptions{adamw.beta1, adamw.beta2, adamw.weight_decay});
  if (o.algorithm == Algorithm::muon)
    return maker<optim::Muon>(
        optim::MuonOptions{.weight_decay = adamw.weight_decay, .adamw = adamw});
  return maker<optim::AdamW>(adamw);
}

}  // namespace

Settings optimizer_settings(TrainOptions& o) {
  SettingGroup group(optimizer_heading, OnResume::say, {.parity = true});
  StepOptions& s = o.step;
  group
      .add("steps|max-steps|max-iters|train-iters|iters|iterations|epochs|num-epochs", "N",
           "training steps", &o.steps, {.deepspeed = "scheduler.params.total_num_steps"})
      .add(
          "micro-batch|batch|batch-size|bs|micro-batch-size|per-device-train-batch-size|train-"
          "micro-batch-size-per-gpu",
          "N", "samples in one micro-batch of one replica", &s.micro_batch,
          {.range = {1, huge}, .on_resume = OnResume::free, .plan = InPlan::sought})
      .add(
          "global-batch|batch|batch-size|global-batch-size|train-batch-size|gradient-accumulation-"
          "steps",
          "N",
          "samples in one step over all replicas; gradients are accumulated over global / (micro "
          "x dp) micro-batches",
          &s.global_batch,
          {.range = {0, huge},
           .shown = "micro-batch x dp x ep",
           .on_resume = OnResume::ask,
           .derived = true,
           .plan = InPlan::sought})
      .add(rate_settings(o.lr))
      .add("clip|grad-clip|clip-grad|max-grad-norm|gradient-clipping", "X",
           "gradient clipping: largest norm of the gradient; 0: none", &s.clip,
           {.deepspeed = "gradient_clipping"})
      .add("groups|param-groups|parameter-groups", "PATTERN:lr=X,decay=X|frozen;..",
           "parameter groups by name, such as \"*norm*:lr=2,decay=0; block0.*:frozen\": lr "
           "multiplies the learning rate, decay replaces the weight decay, frozen parameters are "
           "not trained; the first match counts",
           &s.groups, {.shown = "none", .plan = InPlan::taken})
      .add(
          "average|ema|ema-decay|model-ema|model-ema-decay", "DECAY",
          "also keep an exponential moving average of the weights, such as 0.999, which validation "
          "uses; 0: none",
          &s.average,
          {.range = {0, 1, true}, .on_resume = OnResume::refuse, .plan = InPlan::taken});
  return s.optimizer ? group : group.add(rule_settings(s));  // a program's own has its own
}

void resolve_optimizer(TrainOptions& o) {
  StepOptions& s = o.step;
  if (s.global_batch == 0) s.global_batch = s.micro_batch * s.mesh.replicas();
  if (o.lr.low == -1) o.lr.low = o.lr.peak / 10;
  if (o.lr.warmup == -1) o.lr.warmup = std::min<int64_t>(100, o.steps / 2);
  if (o.steps >= 0 && o.lr.warmup > o.steps) o.cut_warmup = std::exchange(o.lr.warmup, o.steps);
  o.lr.steps = std::max<int64_t>(1, o.steps);
}

void check_optimizer(const TrainOptions& o) {
  check_batch(o.step);
  bool decays = o.lr.decay != optim::Schedule::Decay::constant;
  check_input(!decays || (o.lr.low >= 0 && o.lr.low <= o.lr.peak), Exit::config,
              "min-lr={} with lr={}\n"
              "  The learning rate falls from --lr to --min-lr. Valid min-lr: 0 to {}.",
              o.lr.low, o.lr.peak, o.lr.peak);
  (void)parse_groups(o.step.groups);
  check_muon(o);
}

optim::MakeOptimizer StepOptions::make_optimizer() const {
  auto make = optimizer ? optimizer : built_in(*this);
  if (average == 0) return make;
  return [make, decay = average](const std::vector<optim::Slot>& slots) {
    return std::make_unique<optim::Averaged>(slots, make(slots), decay);
  };
}

}  // namespace triax::parallel
