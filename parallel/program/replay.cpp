#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <set>
#include <string>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/nn/state.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/parity/held.h"
#include "triax/parallel/program/metrics_file.h"
#include "triax/parallel/program/program.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/run_directory.h"
#include "triax/parallel/train/step/digests.h"

namespace triax::parallel {
namespace {

struct ReplayOptions {
  std::string checkpoint;  ///< `RUN/step-N`, or a run directory
  int64_t step = 0;        ///< 0: the one after the checkpoint
  int rank = 0;
  std::string tensor, out, compare;
};

/// The settings of a step of a run, as the run's directory has them.
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

/// Gives `o` and the program's settings the values that the run had in that step, as its directory
/// and its checkpoints say, and lets it resume the checkpoint before the step. Fills in `what`: the
/// path of that checkpoint, and the step. Returns the state of the checkpoint if the run began with
/// --init. Throws Error 78, 66 or 65.
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

/// The record of one rank.
struct Recording {
  std::vector<StepResult> steps;  ///< all after the checkpoint; without the last if it diverged
  /// Outputs of layers `block0/output/2` (micro-batch 2, bitwise sample 2), gradients
  /// `block0.up.weight/gradient` (summed over all ranks, times the loss scale), `loss` and
  /// `grad_norm` (unless the step diverged), then weights, buffers and optimizer state
  /// `block0.up.weight/m` after the step.
  DigestTable table = {};
  Digests saved = {};  ///< the last rows, of the run's checkpoint of the step
  std::optional<nn::NamedTensor> value = {};  ///< the tensor that was asked for
  std::string part = {};                      ///< its place; empty for an activation
  std::exception_ptr diverged = {};           ///< Error 77 of the last step
};

/// Returns `dim 1 from 32 to 63 of [64, 64], elements 0 to 511 of that`.
std::string describe(const Part& part) {
  std::string text = fmt::format("all of {}", part.full);
  if (part.dim >= 0)
    text = fmt::format("dim {} from {} to {} of {}", part.dim, part.begin,
                       part.begin + part.length - 1, part.full);
  if (!is_whole_slice(part))
    text += fmt::format(", of that elements {} to {}", part.flat_begin,
                        part.flat_begin + count(part) - 1);
  return text;
}

std::string output_of(const std::string& layer, int64_t number) {
  return fmt::format("{}/output/{}", layer, number);
}

/// Returns how many samples layers see at once.
int64_t at_once(const StepOptions& o) { return o.bitwise ? 1 : o.micro_batch; }

/// One rank of the run, recorded if it is the one that is observed.
class Player {
 public:
  Player(const Task& task, const TrainOptions& o, World& world, const ReplayOptions& what,
         Recording& recording)
      : what_(what),
        seen_(recording),
        looked_at_(world.rank() == what.rank),
        trainer_(task, o, world,
                 {.layer = [this](auto& name, auto& y, auto& b) { layer(name, y, b); },
                  .gradients =
                      [this](const Step& s) {
                        if (now()) each_gradient(s, [this](const Piece& p) { note(p); });
                      }}) {}

  /// Trains up to the step. `later`: a checkpoint of the step, to compare with; empty: none.
  void run(Communicator& ranks, const std::string& later) {
    together(ranks, [&] {
      if (looked_at_ && !what_.tensor.empty()) check_name();
    });
    while (trainer_.done() < what_.step) step();
    std::optional<Checkpoint> saved;
    if (!later.empty() && !diverged_) saved = Checkpoint::open(later, ranks);
    std::map<std::string, int> parts;
    each_state(trainer_.update(), [&](const Piece& p) {
      std::string name = next_part(parts, p);
      note(name, p.value, describe(p.part));
      if (saved && looked_at_)
        seen_.saved.push_back(digest_of(name, saved->read(p.name, p.part, p.kind)));
    });
  }

 private:
  /// Returns the piece's name, with `#1` behind the next of that name: what Muon keeps of experts.
  static std::string next_part(std::map<std::string, int>& seen, const Piece& p) {
    int number = seen[name_of(p)]++;
    return number == 0 ? name_of(p) : fmt::format("{}#{}", name_of(p), number);
  }
  bool now() const { return looked_at_ && trainer_.done() == what_.step; }

  void step() try {
    StepResult r = trainer_.step();
    if (looked_at_) seen_.steps.push_back(r);
    note("loss", from_host(std::vector{r.loss}, {}, cpu), "");
    note("grad_norm", from_host(std::vector{r.grad_norm}, {}, cpu), "");
  } catch (const Diverged&) {
    if (trainer_.done() < what_.step) throw;
    diverged_ = true;
    if (looked_at_) seen_.diverged = std::current_exception();
  }

  void layer(const std::string& name, const Tensor& y, const nn::Batch& batch) {
    auto& o = trainer_.options().step;
    int64_t sample = batch.first - trainer_.consumed() + o.global_batch;  // its index in this step
    int64_t mine =
        sample / (o.micro_batch * o.mesh.replicas()) * o.micro_batch + sample % o.micro_batch;
    note(output_of(name, mine / at_once(o)), y, "");
  }

  void note(const Piece& p) { note(name_of(p), p.value, describe(p.part)); }
  /// Records a tensor once: a step that is not finite runs its layers again.
  void note(const std::string& name, const Tensor& y, const std::string& part) {
    if (!now() || !noted_.insert(name).second) return;
    seen_.table.rows.push_back(digest_of(name, y));
    if (name == what_.tensor) seen_.value = {name, clone(on_cpu(y))}, seen_.part = part;
  }

  void check_name() const {
    std::vector<std::string> names{"loss", "grad_norm"};
    const Step& s = trainer_.update();
    int64_t samples = s.options().accumulation() * s.options().micro_batch;
    for (auto& chunk : s.replica().chunks())
      for (auto& l : chunk)
        for (int64_t i = 0; i < samples / at_once(s.options()); ++i)
          names.push_back(output_of(l.name, i));
    for (auto* p : s.replica().parameters())
      if (p->value.defined()) names.push_back(p->name);
    for (auto& p : gradient_pieces(s.replica().data())) names.push_back(name_of(p));
    std::map<std::string, int> parts;
    for (auto& p : s.pieces(Holder::any)) names.push_back(next_part(parts, p));
    check_input(std::ranges::count(names, what_.tensor) > 0, Exit::config,
                "replay: rank {} has no tensor {}{}\n  Leave --tensor out for a list of all.",
                what_.rank, printable(what_.tensor), hint(what_.tensor, names, "{}"));
  }

  const ReplayOptions& what_;
  Recording& seen_;
  bool looked_at_;
  Trainer trainer_;
  std::set<std::string> noted_;
  bool diverged_ = false;  // alike on all ranks
};

/// Trains up to the step. Throws Error 78 for a rank or tensor that is not there, and what resuming
/// throws.
Recording record(const Task& task, const TrainOptions& o, const ReplayOptions& what,
                 const std::string& later) {
  const MeshShape& m = o.step.mesh;
  check_input(what.rank >= 0 && what.rank < m.size(), Exit::config,
              "replay: rank={} on a mesh of {}; expected 0 to {}", what.rank, str(m), m.size() - 1);
  Recording seen;
  seen.table.of = fmt::format("step {} of rank {} ({}) of {}, ZeRO {}", what.step, what.rank,
                              place_of(m, what.rank), str(m), int(o.step.zero));
  on_threads(o, [&](World& world) { Player(task, o, world, what, seen).run(world.host(), later); });
  return seen;
}

/// The results of the comparisons.
struct Verdict {
  std::vector<std::string> equal, different;

  /// Compares `before`, the `what` of a file, with `now`.
  void add(std::span<const Digest> before, std::span<const Digest> now, const char* what,
           const std::string& file) {
    auto d = compare(before, now);
    if (d.count == 0) equal.push_back(fmt::format("{} {} as in {}", now.size(), what, file));
    else
      different.push_back(fmt::format("{} of {} {} differ from those in {}; the first is {}",
                                      d.count, now.size(), what, file, d.first));
  }
};

/// True if numbers read back to the same bits; null stands for all that are not finite.
bool same(double recorded, double now) {
  return recorded == now || (std::isnan(recorded) && !std::isfinite(now));
}

void compare_metrics(Verdict& v, const Recording& r, const std::string& run) {
  MetricsFile file = read_metrics(run);
  int64_t equal = 0;
  for (auto& s : r.steps) {
    auto found = file.steps.find(s.step);
    if (found == file.steps.end()) continue;  // not written, as by a run that was killed
    auto [loss, norm, lr] = found->second;
    if (same(loss, s.loss) && same(norm, s.grad_norm) && same(lr, s.lr)) {
      ++equal;
      continue;
    }
    v.different.push_back(fmt::format("step {} has loss {}, norm {}, lr {}; {} has {}, {}, {}",
                                      s.step, s.loss, s.grad_norm, s.lr, file.path, loss, norm,
                                      lr));
    return;
  }
  if (equal > 0)
    v.equal.push_back(
        fmt::format("loss and norm of {} as in {}", counted(equal, "step"), file.path));
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

void show(const Recording& r, const ReplayOptions& what) {
  for (auto& s : r.steps)
    if (s.step == what.step)
      fmt::print("loss {}, gradient norm {}{}\n", s.loss, s.grad_norm,
                 s.skipped ? ", skipped" : "");
  if (r.value && what.out.empty()) print_folded(describe(*r.value, r.part));
  if (r.value && !what.out.empty())
    nn::save_tensors(what.out, {*r.value}, {{"replay", r.table.of}, {"part", r.part}});
  if (what.tensor.empty() && what.out.empty()) fmt::print("{}", describe(r.table.rows));
  if (what.tensor.empty() && !what.out.empty()) save_table(what.out, r.table);
  if (!what.out.empty()) print_folded(fmt::format("written to {}\n", what.out));
}

/// Trains `task` on up to the step, on ranks that are threads, observes one of them, and prints its
/// tensors. Only reads the run. Compares with its metrics, its checkpoint of that step, and a table
/// of an earlier replay. Returns ok or differs. Throws Error, also that of a step which diverged,
/// once its tensors are printed.
Exit replay_and_compare(Task task, TrainOptions o, const ReplayOptions& what) {
  check_input(what.out.empty() || !disk().exists(what.out), Exit::config,
              "replay: {} exists; expected another --out", what.out);
  if (!what.out.empty()) check_output("out", what.out);
  std::optional<DigestTable> table;
  if (!what.compare.empty()) table = load_table(what.compare);
  if (o.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
  std::string run = parent_directory(what.checkpoint);
  std::string later = fmt::format("{}/step-{}", run, what.step);
  if (!disk().is_directory(later)) later.clear();
  task.identity = identity_of(task);  // read once for all ranks
  o.out = o.metrics = "";
  Recording r = record(task, o, what, later);
  print_folded(fmt::format("replay: {}, from {}\n", r.table.of, what.checkpoint));
  show(r, what);
  Verdict v;
  std::span<const Digest> rows(r.table.rows);
  compare_metrics(v, r, run);
  if (!r.saved.empty()) v.add(r.saved, rows.last(r.saved.size()), "tensors", later);
  if (table) {
    check_input(table->of == r.table.of, Exit::data, "replay: {} is of {}; expected one of {}",
                what.compare, printable(table->of), r.table.of);
    v.add(table->rows, rows, "digests", what.compare);
  }
  if (!v.different.empty()) print_folded(fmt::format("DIFFERENT: {}\n", join(v.different, "; ")));
  else if (!v.equal.empty()) print_folded(fmt::format("EQUAL: {}\n", join(v.equal, "; ")));
  else
    print_folded("nothing to compare with: no metrics of these steps, no checkpoint of this one\n");
  if (r.diverged) std::rethrow_exception(r.diverged);
  return v.different.empty() ? Exit::ok : Exit::differs;
}

}  // namespace

Verb replay_verb(ProgramOptions& p) {
  auto o = std::make_shared<ReplayOptions>();
  SettingGroup group("Replay");
  group
      .add("checkpoint|ckpt", "DIR", "RUN/step-N before the step, or a run directory",
           &o->checkpoint, {.shown = "none, must be given"})
      .add("step", "N", "the step to look at", &o->step,
           {.range = {1},
            .shown = "the one after DIR; of a run directory with several checkpoints, that of "
                     "the newest"})
      .add("rank", "N", "the rank to look at", &o->rank)
      .add("tensor", "NAME", "print this tensor in place of the list of all", &o->tensor,
           {.shown = "all"})
      .add("out|output", "FILE",
           "write the list to a new file, for --compare; with --tensor, its values as "
           "safetensors",
           &o->out, {.shown = "printed"})
      .add("compare", "FILE", "compare with a list that --out wrote, as of another build",
           &o->compare, {.shown = "none"});
  return {
      .name = "replay",
      .what =
          "Computes a step of a run again, from a checkpoint, with the same bits: its loss, "
          "and the activations, gradients and weights of one rank.",
      .settings = group,
      .examples = {p.name + " replay --checkpoint runs/mine/step-100 --step 105 --rank 3",
                   p.name + " replay --checkpoint runs/mine --step 105 --tensor block0/output/0"},
      .run = [&p, o](auto&) {
        check_not_launched("replay runs in one process");
        auto initial = take_settings(*o, p.train, p.settings);
        if (initial && p.init) p.init(p.train.init, *initial);
        Task task = p.task();
        task.settings = p.settings;
        return int(replay_and_compare(std::move(task), p.train, *o));
      }};
}

}  // namespace triax::parallel
