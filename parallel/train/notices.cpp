#include "triax/core/check.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {
namespace {

/// Returns a notice of steps with rate 0: the first or the last of a schedule, as with min-lr 0.
std::string steps_at_zero(const TrainOptions& o, int64_t begun) {
  if (o.lr.peak == 0 || o.steps == 0) return "";
  std::string text;
  for (int64_t step : {int64_t{1}, o.steps})
    if (step > begun && o.lr.at(step) == 0 && (step > 1 || text.empty()))
      text += fmt::format("step {} has learning rate 0{}: it changes no weights\n", step,
                          step > o.lr.warmup ? ", which is --min-lr" : "");
  return text;
}

/// Returns a warning if this host's ranks have more threads than cores, or than its CPU quota.
std::string crowding(const World& world) {
  int threads = world.threads(), ranks = world.local_size();
  if (threads <= world.core_share()) return "";
  return fmt::format("{} of this host x {} on {:.3g} core{}: they wait for each other{}\n",
                     counted(ranks, "rank"), counted(threads, "thread"), world.core_share() * ranks,
                     world.core_share() * ranks == 1 ? "" : "s",
                     threads > 1 ? "; set a smaller OMP_NUM_THREADS" : "");
}

/// Returns settings that change nothing in this run, and a batch larger than the data, a line each.
std::string without_effect(const TrainOptions& o, int64_t samples) {
  const StepOptions& s = o.step;
  std::string text;
  if (o.check_replicas > 0 && s.mesh.size() == 1)
    text += fmt::format("check-replicas={}: one rank, so there is nothing to compare\n",
                        o.check_replicas);
  if (s.sequence_parallel && s.mesh.tp == 1)
    text += "sequence-parallel: tp is 1, so there are no ranks to share out rows over\n";
  if (s.tp_pieces > 1 && s.mesh.tp == 1)
    text += fmt::format("tp-pieces={}: tp is 1, so nothing is sent\n", s.tp_pieces);
  // Offloaded parameters and a map of places need ZeRO-3 on one rank too.
  if (s.zero != Zero::off && s.mesh.data() == 1 && s.offload != Offloaded::parameters &&
      s.places.empty())
    text += fmt::format("zero={}: dp is 1, so nothing is sharded\n", int(s.zero));
  if (o.cut_warmup > 0)
    text += fmt::format("warmup={} is more than steps={}: the warm-up ends with the run\n",
                        o.cut_warmup, o.steps);
  if (s.global_batch > samples)
    text += fmt::format("warning: a step takes {} samples of {}, so it takes some more than once\n",
                        s.global_batch, samples);
  return text;
}

}  // namespace

std::string warning_of(const StepResult& first, const StepOptions& o) {
  if (first.grad_norm != 0) return "";
  return fmt::format(
      "warning: all gradients of step {} are 0{}\n", first.step,
      o.bitwise ? "\n  With --bitwise each sample is a micro-batch of its own: a loss that "
                  "compares samples has no gradient. Leave --bitwise out."
                : "");
}

std::string Trainer::describe_start() const {
  const RunDirectory* directory = saver_.directory();
  int64_t begun = saver_.begun();
  using Count = DataParallel::Count;
  const DataParallel& data = step_.replica().data();
  int64_t all = data.parameter_count(), trained = data.parameter_count(Count::trained);
  std::string frozen = trained < all ? fmt::format(", {} of them trained", trained) : "";
  std::string text = fmt::format("{} parameters{}; {} samples a step; {} steps\n", all, frozen,
                                 options_.step.global_batch, options_.steps);
  if (first()) text += weight_warning(*task_.samples);
  text += without_effect(options_, task_.samples->count()) + steps_at_zero(options_, begun) +
          crowding(world_);
  if (!options_.profile.empty() && parse_step_range(options_.profile).last <= begun)
    text += fmt::format("profile={} is left out: the run goes on after step {}\n", options_.profile,
                        begun);
  if (directory) {
    text += fmt::format("run directory {}{}\n", options_.out,
                        begun > 0 ? fmt::format(", resumed after step {}", begun) : "");
    for (auto& change : directory->changes())
      text += fmt::format("changed since the checkpoint: {}\n", change);
    for (int64_t step : directory->damaged())
      text += fmt::format("left out, since damaged: step-{}\n", step);
  }
  if (int64_t n = metrics_ ? metrics_->missing() : 0; n > 0)
    text += fmt::format("{} lacks the line{} of {} before this start\n", options_.metrics,
                        n > 1 ? "s" : "", counted(n, "step"));
  return text;
}

void Trainer::say_end() const {
  const RunDirectory* directory = saver_.directory();
  std::string saved = directory ? fmt::format("; checkpoint {}/step-{}", options_.out, done_) : "";
  if (stopping_) {
    std::string is = directory ? " is saved" : "";
    progress_.say(fmt::format("stopped by a signal after step {}{}{}\n", done_, saved, is));
    if (directory) progress_.say_command("  Go on with " + saver_.resuming());
  } else if (saver_.begun() == done_) {
    progress_.say(
        fmt::format("already at step {}: nothing to do; raise --steps to train on\n", done_));
  } else {
    progress_.say(fmt::format("finished after step {}{}\n", done_, saved));
    if (auto& best = saver_.best())
      progress_.say(fmt::format("lowest validation loss {:.4f}: checkpoint {}/step-{}\n",
                                best->second, options_.out, best->first));
  }
}

}  // namespace triax::parallel
