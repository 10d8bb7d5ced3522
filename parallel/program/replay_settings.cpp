// The settings of a step of a run, as the run's directory has them.
#include <algorithm>

#include "core/check.h"
#include "core/io/files.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/program/replay.h"
#include "parallel/settings/setting.h"
#include "parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

struct History {
  std::string run;             ///< directory
  std::vector<int64_t> steps;  ///< the steps of its checkpoints
  int64_t first = INT64_MAX;   ///< the step with which the last start began, if it is known

  explicit History(std::string directory) : run(std::move(directory)) {
    auto alone = single_rank();
    steps = CheckpointDirectory(run, *alone).steps();
    if (disk().is_file(last_start()))
      first = std::atoll(saved_settings(state(last_start()))["first step"].c_str());
  }
  std::string path(int64_t step) const { return fmt::format("{}/step-{}", run, step); }
  /// Returns the path of what says how a step was trained: settings.txt, or of an earlier start the
  /// next checkpoint. Where that is of the last start, the one `before` says it, unless the last
  /// start has other `settings`: there may have been others between, whose checkpoints are gone.
  std::string told(int64_t step, const std::string& before, const Settings& settings) const {
    if (step >= first) return last_start();
    auto next = std::ranges::lower_bound(steps, step);
    if (next != steps.end() && *next < first) return path(*next);
    if (first == INT64_MAX) return before;
    auto then = saved_settings(state(before)), now = saved_settings(state(last_start()));
    for (auto& s : settings)
      check_input(then[s.name] == now[s.name], Exit::config,
                  "replay: {} has {} {}, and the run began again with step {} and {}; the "
                  "checkpoints between are gone, and with them how step {} was trained\n  Expected "
                  "a step that a checkpoint of its start follows: train with a larger --keep.",
                  before, s.name, then[s.name], first, now[s.name], step);
    return before;
  }
  /// Returns a checkpoint to begin with after `step`.
  std::string from(int64_t step) const {
    return std::ranges::count(steps, step) > 0
               ? "--checkpoint " + path(step)
               : "its checkpoint is gone, which a larger --keep keeps";
  }
  CheckpointState state(const std::string& path) const {
    if (path == last_start()) return {{"settings", whole_settings(path)}};
    return read_manifest(path).state;
  }

 private:
  std::string last_start() const { return run + "/settings.txt"; }
};

/// Fills in the step, unless it was given: the newest checkpoint's, or a lone one's, or the one
/// after a checkpoint that is named as such. Replaces a run directory by its newest checkpoint
/// before the step.
void choose(ReplayOptions& what) {
  check_input(!what.checkpoint.empty(), Exit::config,
              "replay: checkpoint is not given\n  Add --checkpoint RUN/step-N, or RUN.");
  while (what.checkpoint.size() > 1 && what.checkpoint.ends_with('/')) what.checkpoint.pop_back();
  History of(what.checkpoint);
  if (of.steps.empty()) {  // it is a checkpoint itself
    if (what.step == 0) what.step = read_manifest(what.checkpoint).step + 1;
    return;
  }
  if (what.step == 0) what.step = of.steps.back() + (of.steps.size() == 1 ? 1 : 0);
  auto end = std::ranges::lower_bound(of.steps, what.step);
  check_input(end != of.steps.begin(), Exit::config,
              "replay: step={}, and the first checkpoint of {} is step-{}; expected a later step\n"
              "  A step is computed from a checkpoint before it.",
              what.step, what.checkpoint, of.steps.front());
  what.checkpoint = of.path(*(end - 1));
}

/// Refuses a run that was resumed with other settings between the checkpoint, of step `begin`, and
/// the step: it would be trained with the wrong ones at first.
void check_one_start(const History& of, const ReplayOptions& what, int64_t begin,
                     const Settings& settings) {
  std::string path = of.told(what.step, what.checkpoint, settings);
  auto now = saved_settings(of.state(path));
  for (int64_t step = what.step - 1; step > begin; --step) {
    std::string other = of.told(step, what.checkpoint, settings);
    if (std::exchange(path, other) == other) continue;
    auto before = saved_settings(of.state(other));
    for (auto& s : settings)
      check_input(before[s.name] == now[s.name], Exit::config,
                  "replay: {} has {} {}, and the run went on after step {} with {}; expected one "
                  "setting up to step {}\n  Begin where it went on: {}",
                  other, s.name, before[s.name], step, now[s.name], what.step, of.from(step));
  }
}

}  // namespace

std::optional<CheckpointState> take_settings(ReplayOptions& what, TrainOptions& o,
                                             const Settings& of_program) {
  choose(what);
  Manifest begin = read_manifest(what.checkpoint);
  Settings settings = joined({train_settings(o), of_program});
  std::erase_if(settings, [](auto& s) { return s.on_resume == OnResume::apart; });
  History of(parent_directory(what.checkpoint));
  std::string told = of.told(what.step, what.checkpoint, settings);
  CheckpointState state = of.state(told);
  restore(settings, told, state);
  if (o.step.offload == Offloaded::nothing) o.step.offload_dir.clear();  // of a device map
  check_input(
      begin.step < o.steps, Exit::config,
      "replay: checkpoint {} is of the run's last step; expected an earlier one\n"
      "  A step is computed from a checkpoint before it: train with --save-every and --keep.",
      what.checkpoint);
  check_input(begin.step < what.step && what.step <= o.steps, Exit::config,
              "replay: step={}, and checkpoint {} is of step {}; expected a later step, up to {}\n"
              "  A step is computed from a checkpoint before it.",
              what.step, what.checkpoint, begin.step, o.steps);
  check_one_start(of, what, begin.step, settings);
  o.resume = what.checkpoint;
  o.resume_changed = true;  // as the run did
  if (without_quotes(saved_settings(state)["init"]).empty()) return {};
  return begin.state;
}

}  // namespace triax::parallel
