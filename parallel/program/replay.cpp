#include "parallel/program/replay.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "core/check.h"
#include "core/files.h"
#include "core/gpus.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/parity/replay.h"
#include "parallel/program/output_file.h"
#include "parallel/program/recorded_steps.h"
#include "parallel/settings/literals.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/run_directory.h"

namespace triax::parallel {
namespace {

void say(const std::string& text) { fmt::print("{}", folded(text)); }

/// Those that decide about the bits of a step; the others are where and when a run writes, and how
/// its ranks were started.
Settings of_steps(TrainOptions& o, const Settings& of_program) {
  return joined(
      {without(train_settings(o),
               {"comm",    "ranks",      "device-map",     "config", "deepspeed", "out",
                "metrics", "profile",    "tensorboard",    "ledger", "val-every", "graph",
                "workers", "save-every", "check-replicas", "keep",   "keep-best", "save-async",
                "resume",  "init",       "resume-changed"}),
       of_program});
}

/// The checkpoints of the run that one belongs to.
struct History {
  std::string run;  ///< directory
  std::vector<int64_t> steps;
  explicit History(const std::string& directory) : run(directory) {
    auto alone = single_rank();
    steps = CheckpointDirectory(run, *alone).steps();
  }
  std::string path(int64_t step) const { return fmt::format("{}/step-{}", run, step); }
  /// The first of step `from` or later; empty if there is none.
  std::string from(int64_t step) const {
    auto found = std::ranges::lower_bound(steps, step);
    return found == steps.end() ? "" : path(*found);
  }
};

std::string run_of(const std::string& checkpoint) {
  bool slash = checkpoint.ends_with('/');
  return parent_directory(slash ? checkpoint.substr(0, checkpoint.size() - 1) : checkpoint);
}

/// Fills in the step, unless it was given: that of the newest checkpoint, or of a lone one, or of a
/// checkpoint named as such, the one after it. In place of a run directory puts its newest
/// checkpoint before the step.
void choose(ReplayOptions& what) {
  check_input(!what.checkpoint.empty(), Exit::config,
              "replay: checkpoint is not given\n  Add --checkpoint RUN/step-N, or RUN.");
  History of(what.checkpoint);
  if (of.steps.empty()) {  // is one itself
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

/// What a step was trained with.
struct Told {
  std::string path;        ///< of the file that says it
  CheckpointState state;   ///< `settings`
  int64_t first_step = 0;  ///< of the start that trained it; 0: not known
};

/// The last start of the run left its settings in the directory. Those of an earlier one are in the
/// next checkpoint that is not of the last one, or in the one to begin with.
Told told_of(const History& of, int64_t step, const std::string& begin) {
  std::string last = of.run + "/settings.txt", next = of.from(step);
  std::error_code error;
  if (std::filesystem::is_regular_file(last, error)) {
    CheckpointState state{{"settings", whole_settings(last)}};
    int64_t first = std::atoll(saved_settings(state)["first step"].c_str());
    if (first <= step) return {last, std::move(state), first};
    if (next == of.from(first)) next = begin;
  }
  if (next.empty()) next = begin;
  return {next, read_manifest(next).state};
}

/// A run that was resumed with other settings between the checkpoint and the step would be trained
/// with the wrong ones at first.
void check_one_start(const Manifest& begin, const Told& told, const Settings& settings,
                     const ReplayOptions& what) {
  History of(run_of(what.checkpoint));
  auto now = saved_settings(told.state);
  auto check_same = [&](const std::string& path, const CheckpointState& state, int64_t went_on) {
    auto before = saved_settings(state);
    for (auto& s : settings)
      check_input(before[s.name] == now[s.name], Exit::config,
                  "replay: {} has {} {}, and the run went on after step {} with {}; expected one "
                  "setting up to step {}\n  Begin where it went on: --checkpoint {}",
                  path, s.name, before[s.name], went_on, now[s.name], what.step, of.path(went_on));
  };
  if (told.first_step > begin.step + 1)
    check_same(what.checkpoint, begin.state, told.first_step - 1);
  // The last of an earlier start is where the next one went on.
  for (auto step = of.steps.rbegin(); step != of.steps.rend(); ++step)
    if (begin.step < *step && *step < what.step)
      check_same(of.path(*step), read_manifest(of.path(*step)).state, *step);
}

void check_same_data(const Task& task, const std::string& checkpoint) {
  auto saved = saved_settings(read_manifest(checkpoint).state);
  for (auto& [name, now] : task.identity)
    check_input(!saved.contains(name) || saved[name] == now, Exit::config,
                "replay: checkpoint {} was trained with other {} ({}); now it is {}\n"
                "  A step is computed from the same data: put them back where they were.",
                checkpoint, name, saved[name], now);
}

/// What was compared, and what came of it.
struct Verdict {
  std::vector<std::string> equal, different;
};

/// Numbers that read back to the same bits; null stands for all that are not finite.
bool same(double recorded, double now) {
  return recorded == now || (std::isnan(recorded) && !std::isfinite(now));
}

void compare_metrics(Verdict& v, const Replay& r, const std::string& run) {
  std::string metrics = metrics_of(run);
  if (metrics.empty()) return;
  auto recorded = recorded_steps(metrics);
  int64_t equal = 0;
  for (auto& s : r.steps) {
    auto found = recorded.find(s.step);
    if (found == recorded.end()) continue;  // not written, as by a run that was killed
    auto [loss, norm] = found->second;
    if (same(loss, s.loss) && same(norm, s.grad_norm)) {
      ++equal;
      continue;
    }
    v.different.push_back(fmt::format("step {} has loss {} and norm {}; {} has {} and {}", s.step,
                                      s.loss, s.grad_norm, metrics, loss, norm));
    return;
  }
  if (equal > 0)
    v.equal.push_back(
        fmt::format("loss and norm of {} step{} as in {}", equal, equal == 1 ? "" : "s", metrics));
}

void compare_table(Verdict& v, const Replay& r, const std::string& file, const DigestTable& table) {
  check_input(table.of == r.table.of, Exit::data, "replay: {} is of {}; expected one of {}", file,
              printable(table.of), r.table.of);
  auto d = compare(table, r.table);
  if (d.count == 0)
    v.equal.push_back(fmt::format("{} digests as in {}", r.table.rows.size(), file));
  else
    v.different.push_back(fmt::format("{} of {} digests differ from those in {}; the first is {}",
                                      d.count, r.table.rows.size(), file, d.first));
}

std::string describe(const nn::NamedTensor& t, const std::string& part) {
  auto values = t.value.to(f64).to_host<double>();
  Digest d = digest_of(t.name, t.value);
  std::string text = fmt::format("{}: {}", t.name, d.type);
  if (!part.empty()) text += ", " + part;
  text += fmt::format("\n  norm {:.9g}, crc32c {:08x}", d.norm, d.crc32c);
  if (values.empty()) return text + "\n";
  auto [low, high] = std::ranges::minmax_element(values);
  auto odd = std::ranges::count_if(values, [](double x) { return !std::isfinite(x); });
  text += fmt::format(", from {:.9g} to {:.9g}, {} inf or NaN\n ", *low, *high, odd);
  constexpr size_t most = 64;
  for (size_t i = 0; i < std::min(values.size(), most); ++i)
    text += fmt::format(" {:.9g}", values[i]);
  return text + (values.size() > most ? " ...\n" : "\n");
}

void show(const Replay& r, const ReplayOptions& what) {
  for (auto& s : r.steps)
    if (s.step == what.step)
      fmt::print("loss {}, gradient norm {}{}\n", s.loss, s.grad_norm,
                 s.skipped ? ", skipped" : "");
  if (r.value && what.out.empty()) say(describe(*r.value, r.part));
  if (r.value && !what.out.empty())
    nn::save_tensors(what.out, {*r.value}, {{"replay", r.table.of}, {"part", r.part}});
  if (what.tensor.empty() && what.out.empty()) fmt::print("{}", describe(r.table));
  if (what.tensor.empty() && !what.out.empty()) save_table(what.out, r.table);
  if (!what.out.empty()) say(fmt::format("written to {}\n", what.out));
}

}  // namespace

Verb replay_verb(ReplayOptions& o, const std::string& program) {
  SettingGroup group("Replay");
  return {
      "replay",
      "Computes a step of a run again, from a checkpoint, with the same bits: its loss, and the "
      "activations, gradients and weights of one rank.",
      group
          .add("checkpoint", "DIR", "RUN/step-N before the step, or a run directory", &o.checkpoint,
               {.shown = "none, must be given"})
          .add("step", "N", "the step to look at", &o.step,
               {.range = {1},
                .shown = "the one after DIR; of a run directory with several checkpoints, that of "
                         "the newest"})
          .add("rank", "N", "the rank to look at", &o.rank)
          .add("tensor", "NAME", "print this tensor in place of the list of all", &o.tensor,
               {.shown = "all"})
          .add("out", "FILE",
               "write the list to a new file, for --compare; with --tensor, its values as "
               "safetensors",
               &o.out, {.shown = "printed"})
          .add("compare", "FILE", "compare with a list that --out wrote, as of another build",
               &o.compare, {.shown = "none"}),
      {program + " replay --checkpoint runs/mine/step-100 --step 105 --rank 3",
       program + " replay --checkpoint runs/mine --step 105 --tensor block0/output/0"}};
}

std::optional<CheckpointState> take_settings(ReplayOptions& what, TrainOptions& o,
                                             const Settings& of_program) {
  choose(what);
  Manifest begin = read_manifest(what.checkpoint);
  Settings settings = of_steps(o, of_program);
  Told told = told_of(History(run_of(what.checkpoint)), what.step, what.checkpoint);
  check_one_start(begin, told, settings, what);
  restore(settings, told.path, told.state);
  check_input(
      begin.step < o.steps, Exit::config,
      "replay: checkpoint {} is of the run's last step; expected an earlier one\n"
      "  A step is computed from a checkpoint before it: train with --save-every and --keep.",
      what.checkpoint);
  check_input(what.step <= o.steps, Exit::config,
              "replay: step={}, and the run has {} steps; expected one of them\n"
              "  Take another --step, or --checkpoint RUN/step-N of an earlier step.",
              what.step, o.steps);
  o.resume_changed = true;  // what the run did
  if (without_quotes(saved_settings(told.state)["init"]).empty()) return {};
  return begin.state;
}

Exit replay_and_compare(Task task, const TrainOptions& o, const ReplayOptions& what) {
  std::error_code unreachable;
  check_input(what.out.empty() || !std::filesystem::exists(what.out, unreachable), Exit::config,
              "replay: {} exists; expected another --out", what.out);
  if (!what.out.empty()) check_output("out", what.out);
  std::optional<DigestTable> table;
  if (!what.compare.empty()) table = load_table(what.compare);
  task.identity = identity_of(task);
  check_same_data(task, what.checkpoint);
  if (o.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
  History of(run_of(what.checkpoint));
  std::string later = of.from(what.step);
  if (later != of.path(what.step)) later.clear();
  Replay r = replay(task, o, {what.checkpoint, what.step, what.rank, what.tensor, later});
  say(fmt::format("replay: {}, from {}\n", r.table.of, what.checkpoint));
  show(r, what);
  Verdict v;
  compare_metrics(v, r, of.run);
  if (r.compared > 0 && r.differs.empty())
    v.equal.push_back(fmt::format("{} tensors as in {}", r.compared, later));
  if (!r.differs.empty())
    v.different.push_back(fmt::format("{} after the step differs from {}", r.differs, later));
  if (table) compare_table(v, r, what.compare, *table);
  if (!v.different.empty()) say(fmt::format("DIFFERENT: {}\n", join(v.different, "; ")));
  else if (!v.equal.empty()) say(fmt::format("EQUAL: {}\n", join(v.equal, "; ")));
  else say("nothing to compare with: no metrics of these steps, no checkpoint of this one\n");
  if (r.diverged) std::rethrow_exception(r.diverged);
  return v.different.empty() ? Exit::ok : Exit::differs;
}

}  // namespace triax::parallel
