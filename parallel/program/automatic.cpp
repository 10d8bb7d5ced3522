#include "parallel/program/automatic.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/check.h"
#include "core/io/files.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/together.h"
#include "parallel/parity/parity.h"
#include "parallel/plan/calibrate.h"
#include "parallel/plan/step_time.h"
#include "parallel/program/verbs.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/runs/initial_weights.h"
#include "parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

constexpr const char* hardware_name = "hardware.toml";

void say(const std::string& text) {
  std::fputs(folded(text).c_str(), stdout);  // fmt::print throws where nobody reads
  std::fflush(stdout);
}

class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

/// Returns the settings that a choice decides.
Settings decided(TrainOptions& o) {
  Settings all = train_settings(o);
  std::erase_if(all, [](const Setting& s) {
    return s.plan != InPlan::sought && s.name != "recompute" && s.name != "offload";
  });
  return all;
}

}  // namespace

Settings Automatic::settings() {
  SettingGroup group("Plan");
  return group
      .add(
          "auto", "",
          "choose mesh, ZeRO, schedule, micro-batch, recomputation and offload for the ranks there "
          "are, as plan does; what is given stays",
          &on_, {.saved = false, .key = false})
      .add("hardware", "NAME|FILE", "with --auto: what a rank runs on, as in plan", &hardware_,
           {.shown = "measured at the start", .saved = false, .key = false});
}

bool Automatic::asked() const {
  const TrainOptions& o = program_.train;
  check_input(on_ || hardware_.empty(), Exit::config,
              "hardware={} without auto\n  Add --auto, which chooses by it.", printable(hardware_));
  check_input(!on_ || (o.deepspeed.empty() && o.launch.device_map.empty()), Exit::config,
              "auto with {}\n  Each chooses how to train. Leave one of them out.",
              o.deepspeed.empty() ? "device-map" : "deepspeed");
  return on_;
}

std::string Automatic::choose(World& world, const Invocation& call) {
  std::string chosen = text_of_first(world.host(), [&] { return kept(world.size()); });
  if (!chosen.empty()) return chosen;
  Hardware h = hardware(world);
  return text_of_first(world.host(), [&] { return search(h, world.size(), call); });
}

/// Returns the choice of the run that is resumed; empty if there is none or it had other ranks.
std::string Automatic::kept(int ranks) {
  TrainOptions o = program_.train;
  if (o.resume.empty()) return "";
  bool searches = o.resume == "auto" || o.resume == "last-good";
  std::string from = searches ? o.out : o.resume, checkpoint = newest_checkpoint(from);
  if (searches && checkpoint == from) return "";
  restore(decided(o), checkpoint, read_manifest(checkpoint).state);
  int before = o.step.mesh.size();
  program_.train.step.global_batch = o.step.global_batch;
  bool same = before == ranks;
  say(fmt::format("auto: {} was trained on {} ranks: {}\n", checkpoint, before,
                  same ? "its choice is kept" : fmt::format("a new choice for {}", ranks)));
  return same ? to_toml(decided(o)) : "";
}

Hardware Automatic::hardware(World& world) {
  std::string known = text_of_first(world.host(), [&]() -> std::string {
    std::string cached = program_.train.out + "/" + hardware_name;
    bool here = !program_.train.out.empty() && disk().exists(cached);
    return !hardware_.empty() ? hardware_ : here ? cached : "";
  });
  if (!known.empty()) return hardware_named(known);
  Stopwatch watch;
  Calibration found = calibrate(world, {.round = 1e-3, .rounds = 3, .less = 8});
  if (world.rank() == 0) {
    measured_ = hardware_file(found.hardware);
    say(fmt::format("auto: measured this machine with {} ranks of {} threads in {:.1f} s\n",
                    world.size(), world.threads(), watch.seconds()));
  }
  return found.hardware;
}

std::string Automatic::search(const Hardware& h, int ranks, const Invocation& call) {
  Stopwatch watch;
  PlanOptions o{.train = program_.train, .ranks = ranks, .measured = h, .top = 5};
  take_request(o, call);
  StepOptions& s = o.train.step;
  TrainOptions without = o.train;
  resolve(without, ranks);
  s.global_batch = without.step.global_batch;
  leave_open(s, o.given);
  Task task = program_.task();
  task.description = "";  // which training prints
  Plans found = plans(task, o);
  check_fits(found);
  say(summary(task, o, found));
  say(fmt::format("auto: chosen in {:.1f} s. To train so without --auto:\n{}\n", watch.seconds(),
                  train_command(o, found)));
  TrainOptions best = found.all.front().options;
  say(verdict(found.all.front(), h));
  return to_toml(decided(best));
}

std::string Automatic::verdict(const Plan& best, const Hardware& h) {
  (void)h;
  (void)best;
  return "";
}

}  // namespace triax::parallel
