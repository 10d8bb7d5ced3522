#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <optional>

#include "core/check.h"
#include "core/gpus.h"
#include "core/io/files.h"
#include "parallel/comm/launch/stop_signal.h"
#include "parallel/comm/process.h"
#include "parallel/comm/together.h"
#include "parallel/plan/rehearsal.h"
#include "parallel/program/automatic.h"
#include "parallel/program/deepspeed/deepspeed.h"
#include "parallel/program/device_map.h"
#include "parallel/program/verbs.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/runs/initial_weights.h"
#include "parallel/train/step/elastic.h"

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
  explicit TrainCall(ProgramOptions& program)
      : own_(program), train_(program.train), automatic_(program) {
    SettingGroup elastic("Elastic restarts");
    elastic.add("mesh-for", "N",
                "print the mesh that this run would use on N ranks, and do not train "
                "(for launch.sh --elastic)",
                &mesh_for_, {.range = {0, 65536}, .shown = "off", .saved = false, .key = false});
    settings_ = joined({own_.settings, train_settings(train_), automatic_.settings(), elastic});
  }
  const Settings& settings() const { return settings_; }

  int run(const Invocation& call) {
    if (!train_.init.empty()) take_initial(call);
    apply_deepspeed(call.request.given);
    bool asked = std::ranges::count(call.request.given, "mesh-for") > 0;
    check_input(!asked || mesh_for_ > 0, Exit::usage,
                "mesh-for 0; expected a number of ranks, 1 or more");
    return asked ? print_mesh() : int(train(call));
  }

 private:
  /// Makes the model settings of the checkpoint that --init names the defaults.
  void take_initial(const Invocation& call) {
    // A run that is resumed has them itself; the checkpoint that it began with may be gone.
    bool resumes = !train_.resume.empty() && !train_.out.empty() &&
                   newest_checkpoint(train_.out) != train_.out;
    const std::string& from = resumes ? train_.out : train_.init;
    auto state = take_model_settings(own_.settings, from);
    if (own_.init) own_.init(from, state);
    (void)parse(call.line, std::vector<std::string>(call.argv + 1, call.argv + call.argc),
                terminal_columns());
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

  /// Prints the ranks of the mesh, and its flags: for launch.sh --elastic.
  int print_mesh() {
    StepOptions on = elastic_options(own_.task(), train_, mesh_for_).step;
    fmt::print("{} {} --micro-batch {} --global-batch {}\n", on.mesh.size(),
               flags(on.mesh, train_.step.mesh), on.micro_batch, on.global_batch);
    return 0;
  }

  Exit train(const Invocation& call) {
    bool chooses = automatic_.asked();
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
    std::string config;
    std::atomic<Exit> result = Exit::ok;  // the same on all ranks
    std::once_flag once;                  // ranks that are threads share the task
    Task made;
    std::exception_ptr error;
    if (!train_.launch.device_map.empty()) {
      check_not_launched("--device-map places the layers of one process");
      std::call_once(once, [&] { made = own_.task(); });
      made.description =
          apply_device_map(train_.launch.device_map, made, train_) + made.description;
    }
    on_ranks(train_.launch, call.argc, call.argv, [&](World& world) {
      std::string chosen = chooses ? automatic_.choose(world, call) : "";
      together(world.host(), [&] {
        std::call_once(once, [&] {
          error = error_of([&] {
            (void)read_config_text(settings_, chosen, "--auto");
            config = to_toml(settings_);  // before anything is derived
            made = own_.task();
          });
        });
        if (error) std::rethrow_exception(error);
      });
      Task task = made;
      task.settings = own_.settings;
      task.config = config;
      bool launched = world.size() > 1 && train_.launch.comm != "threads";
      task.command = launched ? fmt::format("mpirun -np {} ", world.size()) : "";
      task.command += shell_word(call.argv[0]) + " train";
      result = train(std::move(task), world);
    });
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
  Automatic automatic_;
  Settings settings_;
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
