#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/plan/calibrate.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/program/deepspeed/deepspeed.h"
#include "triax/parallel/program/device_map.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/run_directory.h"
#include "triax/parallel/train/step/elastic.h"

namespace triax::parallel {
namespace {

std::exception_ptr error_of(const std::function<void()>& f) try {
  f();
  return nullptr;
} catch (...) {
  return std::current_exception();
}

/// One call of `train`.
class TrainCall {
 public:
  explicit TrainCall(ProgramOptions& program) : own_(program), train_(program.train) {
    SettingGroup elastic("Elastic restarts");
    elastic.add("mesh-for", "N",
                "print the mesh that this run would use on N ranks, and do not train "
                "(for launch.sh --elastic)",
                &mesh_for_, {.range = {0, 65536}, .shown = "off", .saved = false, .key = false});
    SettingGroup plan("Plan");
    plan.add("auto", "",
             "choose mesh, ZeRO, schedule, micro-batch, recomputation and offload for the ranks "
             "there are, as `plan` does; what is given stays",
             &auto_, {.saved = false, .key = false})
        .add("hardware", "NAME|FILE", "with --auto: what a rank runs on, as for `plan`", &hardware_,
             {.shown = "measured", .saved = false, .key = false});
    settings_ = joined({own_.settings, plan, train_settings(train_), elastic});
  }
  const Settings& settings() const { return settings_; }

  int run(const Invocation& call) {
    if (!train_.init.empty()) take_initial(call);
    apply_deepspeed(call.request.given);
    bool asked = std::ranges::count(call.request.given, "mesh-for") > 0;
    check_input(!asked || mesh_for_ > 0, Exit::usage,
                "mesh-for 0; expected a number of ranks, 1 or more");
    if (!asked) return int(train(call));
    StepOptions on = elastic_options(own_.task(), train_, mesh_for_).step;  // for launch.sh
    fmt::print("{} {} --micro-batch {} --global-batch {}\n", on.mesh.size(),
               flags(on.mesh, train_.step.mesh), on.micro_batch, on.global_batch);
    return 0;
  }

 private:
  /// Makes the model settings of the checkpoint that --init names the defaults.
  void take_initial(const Invocation& call) {
    // A run that is resumed has them itself; the checkpoint that it began with may be gone.
    bool resumes = !train_.resume.empty() && !train_.out.empty() &&
                   newest_checkpoint(train_.out) != train_.out;
    std::string taken = take_checkpoint(own_, resumes ? train_.out : train_.init, call);
    if (!resumes) train_.init = taken;
  }

  /// Applies the file for the announced ranks; check_replicas() compares them with the real ones.
  void apply_deepspeed(const std::vector<std::string>& given) {
    if (train_.deepspeed.empty()) return;
    const LaunchOptions& o = train_.launch;
    const MeshShape& m = train_.step.mesh;
    int64_t ranks = mesh_for_ > 0         ? mesh_for_
                    : o.comm == "threads" ? std::max<int64_t>(1, o.ranks)
                                          : announced_by_launcher().size;
    deepspeed_dp_ = m.dp > 0 ? m.dp : std::max<int64_t>(1, int64_t(double(ranks) / m.least_size()));
    notes_ =
        parallel::apply_deepspeed({train_.deepspeed, own_.name, settings_, given, deepspeed_dp_});
  }

  void check_replicas(int dp) const {
    check_input(deepspeed_dp_ == 0 || deepspeed_dp_ == dp, Exit::config,
                "{}: read for {} data-parallel replicas, as the launcher announced; there are {}\n"
                "  Add --dp {}.",
                train_.deepspeed, deepspeed_dp_, dp, dp);
  }

  /// Returns, on every rank, a configuration with what rank 0 chooses.
  std::string choose(World& world, const Invocation& call) {
    std::string kept =
        text_of_first(world.host(), [&] { return kept_choice(world.size(), call.request); });
    if (!kept.empty()) return kept;
    std::optional<Hardware> measured;
    if (hardware_.empty()) measured = measure(world);
    return text_of_first(world.host(), [&] {
      PlanOptions o{.train = train_, .ranks = world.size(), .hardware = hardware_};
      o.measured = measured, o.top = 5;
      take_request(o, call);
      resolve(o.train, world.size());  // the global batch is that without a choice
      leave_open(o.train.step, o.given);
      Task task = own_.task();
      task.description = "";  // training prints it
      Plans found = plan(task, o);
      TrainOptions best = found.all.front().options;
      verify(best.step, found.hardware);
      return to_toml(chosen(best));
    });
  }

  /// Returns the settings of `o` that a search decides, and the global batch.
  static Settings chosen(TrainOptions& o) {
    Settings all = train_settings(o);
    std::erase_if(all, [](auto& s) { return s.plan != InPlan::sought && s.name != "offload"; });
    return all;
  }

  /// Returns the choice of the run that is resumed, if it had as many ranks.
  std::string kept_choice(int ranks, const Request& request) {
    bool searches = train_.resume == "auto" || train_.resume == "last-good";
    const std::string& from = searches ? train_.out : train_.resume;
    std::string checkpoint = from.empty() ? from : newest_checkpoint(from);
    if (checkpoint.empty() || (searches && checkpoint == from)) return "";
    CheckpointState state;
    try {
      state = read_manifest(checkpoint).state;
    } catch (const Error& e) {
      if (train_.resume != "last-good" || e.code() != Exit::data) throw;
      return fmt::print("auto: {}: a new choice\n", e.what()), "";
    }
    TrainOptions saved = train_, o = train_;
    restore(chosen(saved), checkpoint, state);
    Settings open = chosen(o);
    std::erase_if(open, [&](auto& s) {
      return std::ranges::count(request.given, s.name) +
             std::ranges::count(request.configured, s.name);
    });
    restore(open, checkpoint, state);
    train_.step.global_batch = o.step.global_batch;
    bool same = saved.step.mesh.size() == ranks;
    fmt::print("auto: {} is of {} ranks: {}\n", checkpoint, saved.step.mesh.size(),
               same ? "its choice stays" : fmt::format("a new choice for {}", ranks));
    return same ? to_toml(chosen(o)) : "";
  }

  /// Collective.
  Hardware measure(World& world) {
    auto start = std::chrono::steady_clock::now();
    Hardware h = calibrate(world, {.round = 3e-3, .rounds = 5, .less = 4}).hardware;
    std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (world.rank() == 0)
      fmt::print("auto: measured the hardware in {:.1f} s: {}, threads of each: {}\n", took.count(),
                 counted(world.size(), "rank"), world.threads());
    return h;
  }

  /// Trains a smaller model this way on threads, and on one rank. Throws Error 1 if they differ.
  void verify(const StepOptions& best, const Hardware& h) {
    TrainOptions o{.step = best, .steps = 2};
    StepOptions& s = o.step;
    int64_t none = 0, *layers = &none;
    for (const Setting& own : own_.settings)
      if (auto* field = std::get_if<int64_t*>(&own.field); field && own.name == "layers")
        layers = *field;
    int64_t fewer = std::min<int64_t>(*layers, std::max(2, s.mesh.pp * s.chunks));
    int64_t all = std::exchange(*layers, fewer);
    Task task = own_.task();
    *layers = all;
    o.lr.warmup = 0, s.placement = s.groups = "", s.graph = false;  // these name layers
    int64_t micros = s.accumulation();  // those of a schedule from a file
    if (layers != &none) s.micro_batch = std::min<int64_t>(2, s.micro_batch);
    s.global_batch = is_schedule_file(s.schedule) ? micros * s.micro_batch * s.mesh.replicas() : 0;
    choose_batch(o);
    double flop = StepTimes(task, h).model_flop(s);
    if (flop > 2e10 || s.mesh.size() > 64)
      return fmt::print(
          "auto: not verified: {} ranks with {:.1g} FLOP a step are much for threads\n",
          s.mesh.size(), flop);
    check_input(parity(task, o, OneRank::same_micro_batches) == Exit::ok, Exit::differs,
                "auto: the best plan does not train as one rank does\n  Fix another by flags, such "
                "as --zero 0 or --schedule 1f1b, or leave --auto out.");
  }

  /// Makes the task with what --auto chooses, once for ranks that are threads.
  Task task(World& world, const Invocation& call) {
    std::string choice = auto_ ? choose(world, call) : "";
    together(world.host(), [&] {
      std::call_once(once_, [&] {
        error_ = error_of([&] {
          (void)read_config_text(settings_, choice, "--auto");
          if (auto_) config_ = to_toml(settings_);
          made_ = own_.task();
        });
      });
      if (error_) std::rethrow_exception(error_);
    });
    Task task = made_;
    task.settings = own_.settings;
    task.config = config_;
    bool launched = world.size() > 1 && train_.launch.comm != "threads";
    task.command = launched ? fmt::format("mpirun -np {} ", world.size()) : "";
    task.command += shell_word(call.argv[0]) + " train";
    return task;
  }

  Exit train(const Invocation& call) {
    bool other = !train_.deepspeed.empty() || !train_.launch.device_map.empty();
    check_input(auto_ ? !other : hardware_.empty(), Exit::config, "{}",
                auto_
                    ? "auto with deepspeed or device-map\n  These say how to train. Leave one out."
                    : "hardware without auto\n  Add --auto, which chooses by it.");
    bool searches = train_.resume == "auto" || train_.resume == "last-good";
    check_input(
        !searches || !train_.out.empty(), Exit::config,
        "resume={} without out\n  Add --out DIR: without it every run begins in a new, empty "
        "directory.",
        train_.resume);
    StopSignal stop;
    // Training goes on when nobody reads what it prints, and its end is still reported.
    std::signal(SIGPIPE, SIG_IGN);
    if (train_.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
    config_ = to_toml(settings_);         // before anything is derived
    std::atomic<Exit> result = Exit::ok;  // the same on all ranks
    if (!train_.launch.device_map.empty()) {
      check_not_launched("--device-map places the layers of one process");
      std::call_once(once_, [&] { made_ = own_.task(); });
      made_.description =
          apply_device_map(train_.launch.device_map, made_, train_) + made_.description;
    }
    on_ranks(train_.launch, call.argc, call.argv,
             [&](World& world) { result = train(task(world, call), world); });
    return result;
  }

  Exit train(Task given, World& world) {
    ResolvedRun run = resolve_run(std::move(given), train_, world);
    TrainOptions& o = run.options;
    check_replicas(o.step.mesh.replicas());
    std::optional<UnlessUsed> made;
    if (o.out.empty()) {
      o.out = text_of_first(world.host(), [&] { return make_run_directory(own_.name); });
      if (world.rank() == 0) made.emplace(o.out);
    }
    std::string stages = text_of_first(world.host(), [&] {
      Preview p = preview(run.task, o, world);
      run.task.foreseen_memory = p.memory;
      return p.text;
    });
    std::string start =
        notes_ + world.notices() + describe(o.step.mesh) + stages + run.task.description;
    if (world.rank() == 0) std::fputs(folded(start).c_str(), stdout);
    try {
      Trainer trainer(std::move(run), world);
      if (own_.prepare) own_.prepare(trainer);
      return trainer.run();
    } catch (const Error& e) {
      if (e.code() != Exit::memory) throw;
      throw e.saying(fmt::format("{}\n  {}", e.what(), less_memory));
    }
  }

  ProgramOptions& own_;
  TrainOptions& train_;
  Settings settings_;
  bool auto_ = false;
  std::string hardware_;  // of --auto: a name or a file; empty: it is measured
  std::string config_;
  std::once_flag once_;  // ranks that are threads share the task
  Task made_;
  std::exception_ptr error_;
  int64_t mesh_for_ = 0;      // ranks to print a mesh for; 0: train
  int64_t deepspeed_dp_ = 0;  // 0: no DeepSpeed configuration
  std::string notes_;         // notes about that configuration
};

}  // namespace

Verb train_verb(ProgramOptions& p) {
  auto call = std::make_shared<TrainCall>(p);
  return {.name = "train",
          .what = p.what,
          .settings = call->settings(),
          .examples = {p.name + " train --steps 500",
                       p.name + " train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2",
                       "mpirun -np 4 " + p.name + " train --tp 2 --zero 1"},
          .run = [call](const Invocation& words) { return call->run(words); },
          .elsewhere = "pretrain|fit|finetune"};
}

}  // namespace triax::parallel
