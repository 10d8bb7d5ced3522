#include "parallel/program/program.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "core/check.h"
#include "core/files.h"
#include "core/gpus.h"
#include "parallel/comm/launch/stop_signal.h"
#include "parallel/comm/launch/world.h"
#include "parallel/comm/process.h"
#include "parallel/comm/together.h"
#include "parallel/parity/parity.h"
#include "parallel/program/calibrate_verb.h"
#include "parallel/program/checkpoint_verbs.h"
#include "parallel/program/deepspeed.h"
#include "parallel/program/device_map.h"
#include "parallel/program/replay.h"
#include "parallel/program/schedule_verb.h"
#include "parallel/program/verbs.h"
#include "parallel/settings/completion.h"
#include "parallel/settings/man_page.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/agreement.h"
#include "parallel/train/elastic.h"
#include "parallel/train/initial_weights.h"

namespace triax::parallel {
namespace {

WorldOptions world_options(const LaunchOptions& o) {
  using enum GpuTransport;
  auto transport = o.comm == "auto" ? automatic : o.comm == "nccl" ? nccl : host;
  return {.device = device_named(o.device), .gpu_transport = transport, .wrap = o.wrap};
}

void check_launch(const LaunchOptions& o) {
  (void)device_named(o.device);
  check_input(o.comm != "nccl" || o.device != "cpu", Exit::config,
              "comm=nccl with device=cpu\n"
              "  NCCL moves tensors of GPUs. Add --device cuda, or leave --comm out.");
  check_input(o.ranks == 0 || o.comm == "threads", Exit::config,
              "ranks={} with comm={}\n"
              "  This program starts ranks only as threads. Add --comm threads, or "
              "leave --ranks\n  out and start processes: mpirun -np {} with the same command",
              o.ranks, o.comm, o.ranks);
}

std::exception_ptr error_of(const std::function<void()>& f) try {
  f();
  return nullptr;
} catch (...) {
  return std::current_exception();
}

/// The program with the options of one call: verbs read into these.
class Program {
 public:
  explicit Program(ProgramOptions& o) : own_(o), train_(o.train), parity_(o.train) {
    plan_.train = o.train;
    plan_.train.step.mesh = {.dp = 0, .pp = 0, .tp = 0};
    plan_.train.step.micro_batch = plan_.train.step.global_batch = 0;  // open: looked for
    plan_.train.step.schedule.clear();
    parity_.steps = std::min<int64_t>(parity_.steps, 4);  // trained three times
    parity_.lr.warmup = -1;                               // follows the steps
  }

  /// The exit code. What a verb prints must have arrived, but training goes on without a reader.
  int run(int argc, char** argv) {
    std::string verb = argc > 1 ? argv[1] : "";
    int code = 0;
    try {
      code = call(argc, argv);
    } catch (const std::system_error&) {  // of fmt::print, which no training calls
      if (verb == "train" || !std::ferror(stdout)) throw;
    }
    bool printed = std::fflush(stdout) == 0 && !std::ferror(stdout);
    check_input(verb == "train" || printed, Exit::cannot_write, "{}: cannot write to stdout: {}",
                verb.empty() ? own_.name : verb, std::strerror(errno));
    return code;
  }

 private:
  int call(int argc, char** argv) {
    auto is = [&](int i, std::string_view word) { return argc > i && argv[i] == word; };
    auto asks = [&](const char* verb) {
      bool help = is(1, "help") || is(1, "--help") || is(1, "-h");
      return is(1, verb) || (help && is(2, verb));
    };
    if (asks("parity") && own_.parity_defaults) own_.parity_defaults(parity_);
    bool of_all = is(1, "flags") || is(1, "manual");
    if ((asks("plan") || of_all) && own_.plan_defaults) own_.plan_defaults(plan_.train);
    CommandLine line{own_.name,
                     "triax 0.1.0, build " + build_id(),
                     {train_verb(train_, own_, mesh_for_),
                      parity_verb(parity_, compared_, own_),
                      plan_verb(plan_, own_),
                      replay_verb(replay_, own_.name),
                      calibrate_verb(calibrate_, own_.name),
                      schedule_verb(schedule_, train_.step.schedules),
                      checkpoint_inspect_verb(checkpoint_),
                      checkpoint_verify_verb(checkpoint_),
                      {"flags", "Prints the table of all flags, in Markdown.", {}, {}},
                      {"manual", "Prints the man page, in roff.", {}, {}}}};
    auto behind = line.verbs.begin() + 1;
    for (auto& verb : own_.verbs) behind = line.verbs.insert(behind, verb.verb) + 1;
    std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
    if (is(1, "complete")) {  // of the shells; not among the verbs
      std::fputs(completions(line, std::span(words).subspan(1)).c_str(), stdout);
      return 0;
    }
    Request request = parse(line, words, terminal_columns());
    if (!request.verb) {
      std::fputs(request.text.c_str(), request.code == Exit::ok ? stdout : stderr);
      return int(request.code);
    }
    try {
      return perform(request, line, argc, argv);
    } catch (const Error& e) {
      if (e.code() != Exit::not_found) throw;
      throw e.saying(e.what() + paths_named(e.what(), request));
    }
  }

  int perform(Request& request, const CommandLine& line, int argc, char** argv) {
    const std::string name = request.verb->name;
    if (name == "train" && !train_.init.empty()) {
      // A run that is resumed has them itself; the checkpoint that it began with may be gone.
      bool resumes = !train_.resume.empty() && !train_.out.empty() &&
                     newest_checkpoint(train_.out) != train_.out;
      const std::string& from = resumes ? train_.out : train_.init;
      auto state = take_model_settings(own_.settings, from);
      if (own_.init) own_.init(from, state);
      request = parse(line, std::vector<std::string>(argv + 1, argv + argc), terminal_columns());
    }
    if (name == "parity" || name == "plan" || name == "replay")
      check_not_launched(fmt::format("{} runs in one process", name));
    if (name == "train") {
      apply_deepspeed(*request.verb, request.given);
      bool asked = std::ranges::count(request.given, "mesh-for") > 0;
      check_input(!asked || mesh_for_ > 0, Exit::usage,
                  "mesh-for 0; expected a number of ranks, 1 or more");
      return asked ? print_mesh() : int(train(argc, argv));
    }
    if (name == "parity") return int(parity());
    if (name == "plan") return plan(request, argv[0]);
    if (name == "calibrate") return run_calibrate(calibrate_, argc, argv), 0;
    if (name == "replay") return int(replay());
    if (name == "schedule")
      return int(show_schedule(schedule_, train_.step.schedules, request.given));
    if (name == "checkpoint inspect") return int(inspect_checkpoint(checkpoint_));
    if (name == "checkpoint verify") return int(verify_checkpoint(checkpoint_));
    if (name == "flags") return flags(line);
    if (name == "manual") return print_all(line, man_page(line), man_page);
    for (auto& verb : own_.verbs)
      if (verb.verb.name == name) return verb.run(argc, argv);
    return int(Exit::usage);
  }

  /// Ranks as they are announced; check_replicas() compares them with those that came.
  void apply_deepspeed(const Verb& verb, const std::vector<std::string>& given) {
    if (train_.deepspeed.empty()) return;
    const LaunchOptions& o = train_.launch;
    const MeshShape& m = train_.step.mesh;
    int64_t ranks = mesh_for_ > 0         ? mesh_for_
                    : o.comm == "threads" ? std::max<int64_t>(1, o.ranks)
                                          : announced_by_launcher().size;
    deepspeed_dp_ = m.dp > 0 ? m.dp : std::max<int64_t>(1, ranks / (int64_t{m.pp} * m.tp));
    notes_ = parallel::apply_deepspeed(
        {train_.deepspeed, own_.name, verb.settings, given, deepspeed_dp_});
  }

  void check_replicas(int dp) const {
    check_input(deepspeed_dp_ == 0 || deepspeed_dp_ == dp, Exit::config,
                "{}: read for {} data-parallel replicas, as the launcher announced; there are {}\n"
                "  Add --dp {}.",
                train_.deepspeed, deepspeed_dp_, dp, dp);
  }

  /// How many ranks the mesh has, and the flags that say what it is: for launch.sh --elastic.
  int print_mesh() {
    StepOptions on = elastic_options(own_.task(), train_, mesh_for_).step;
    fmt::print("{} --dp {} --pp {} --tp {} --micro-batch {} --global-batch {}\n", on.mesh.size(),
               on.mesh.dp, on.mesh.pp, on.mesh.tp, on.micro_batch, on.global_batch);
    return 0;
  }

  Exit train(int argc, char** argv) {
    bool searches = train_.resume == "auto" || train_.resume == "last-good";
    check_input(
        !searches || !train_.out.empty(), Exit::config,
        "resume={} without out\n  Add --out DIR: without it every run begins in a new, empty "
        "directory.",
        train_.resume);
    StopSignal stop;
    // Training goes on when nobody reads what it prints, and what ends it is still reported.
    std::signal(SIGPIPE, SIG_IGN);
    if (train_.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
    std::string config =
        to_toml(train_verb(train_, own_, mesh_for_).settings);  // before anything is derived
    std::atomic<Exit> result = Exit::ok;                        // the same on all ranks
    std::once_flag once;  // ranks that are threads share the task
    Task made;
    std::exception_ptr error;
    if (!train_.launch.device_map.empty()) {
      check_not_launched("--device-map places the layers of one process");
      std::call_once(once, [&] { made = own_.task(); });
      made.description =
          apply_device_map(train_.launch.device_map, made, train_) + made.description;
    }
    on_ranks(train_.launch, argc, argv, [&](World& world) {
      together(world.host(), [&] {
        std::call_once(once, [&] { error = error_of([&] { made = own_.task(); }); });
        if (error) std::rethrow_exception(error);
      });
      Task task = made;
      task.settings = own_.settings;
      task.config = config;
      bool launched = world.size() > 1 && train_.launch.comm != "threads";
      task.command = launched ? fmt::format("mpirun -np {} ", world.size()) : "";
      task.command += shell_word(argv[0]) + " train";
      result = train(std::move(task), world);
    });
    return result;
  }

  Exit train(Task given, World& world) {
    Settled run = settle(std::move(given), train_, world);
    TrainOptions& o = run.options;
    check_replicas(o.step.mesh.dp);
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

  Exit parity() {
    parity_.step.mesh = mesh_of(compared_.mesh);
    choose_batch(parity_);
    resolve(parity_, parity_.step.mesh.size());
    check_options(parity_, parity_.step.mesh.size());
    bool same = compared_.same_micro_batches;
    return parallel::parity(own_.task(), parity_,
                            same ? OneRank::same_micro_batches : OneRank::whole_batch);
  }

  int plan(const Request& request, const char* program);

  Exit replay() {
    auto initial = take_settings(replay_, train_, own_.settings);
    if (initial && own_.init) own_.init(train_.init, *initial);
    Task task = own_.task();
    task.settings = own_.settings;
    return replay_and_compare(std::move(task), train_, replay_);
  }

  int flags(const CommandLine& line) {
    std::string page = fmt::format(
        "# The flags of {}\n\nMade by `{} flags`; do not edit. Every flag is "
        "also a key of the TOML file that\n`--config` names: `--micro-batch 8` is "
        "`micro-batch = 8`, `--data FILE` is `data = \"FILE\"`.\n",
        own_.name, own_.name);
    return print_all(line, page,
                     [](auto& name, auto& verb) { return "\n" + markdown(name, verb); });
  }

  /// A page, and what `section` says of each verb that takes words; the defaults of `parity` come
  /// last, since they change the options.
  int print_all(const CommandLine& line, std::string page,
                std::string (*section)(const std::string&, const Verb&)) {
    auto add = [&](const Verb& verb) {
      if (!verb.settings.empty() || !verb.operands.empty()) page += section(own_.name, verb);
    };
    for (auto& verb : line.verbs)
      if (verb.name != "parity") add(verb);
    if (own_.parity_defaults) own_.parity_defaults(parity_);
    add(parity_verb(parity_, compared_, own_));
    std::fputs(page.c_str(), stdout);
    return 0;
  }

  ProgramOptions& own_;
  TrainOptions train_, parity_;
  PlanOptions plan_;
  CalibrateOptions calibrate_;
  ScheduleOptions schedule_;
  ReplayOptions replay_;
  ParityRuns compared_;
  std::string checkpoint_;    // to look at
  int64_t mesh_for_ = 0;      // ranks to print a mesh for; 0: train
  int64_t deepspeed_dp_ = 0;  // 0: no DeepSpeed configuration
  std::string notes_;         // about it
};

/// What a request for a plan has and the plan does not decide. `train` refuses a file that has
/// settings of `plan` alone: what else that has becomes flags.
std::string flags_for_train(const Request& request) {
  auto has = [](const std::vector<std::string>& names, const Setting& s) {
    return std::ranges::count(names, s.name) > 0;
  };
  auto& settings = request.verb->settings;
  std::vector<std::string> names = request.given;
  if (std::ranges::any_of(settings, [&](const Setting& s) {
        return s.group == "Plan" && has(request.configured, s);
      })) {
    std::erase(names, "config");
    names.insert(names.end(), request.configured.begin(), request.configured.end());
  }
  std::string flags;
  for (const Setting& s : settings) {
    bool empty = is_path(s) && value_text(s).empty();  // as a configuration file may have it
    if (has(names, s) && !empty && !is_planned(s))
      flags += fmt::format(" --{} {}", s.name, shell_word(value_text(s)));
  }
  return flags;
}

int Program::plan(const Request& request, const char* program) {
  auto& given = plan_.given;
  given = request.given;
  given.insert(given.end(), request.configured.begin(), request.configured.end());
  const MeshShape& m = plan_.train.step.mesh;
  double axes = double(std::max(1, m.dp)) * std::max(1, m.pp) * std::max(1, m.tp);
  double ranks = std::max(double(plan_.ranks), axes);
  auto here = std::max(double(std::thread::hardware_concurrency()), double(gpu_count()));
  auto has = [&](const std::string& name) { return std::ranges::count(given, name) > 0; };
  for (auto& [name, example, or_else] : own_.plan_needs)
    check_input(ranks <= here || has(name) || has(or_else), Exit::config,
                "plan: --{} is not given for {} ranks, more than this machine's {}\n"
                "  Its default is for small runs. Add --{} N{}, as the run will have it.",
                name, ranks, here, name, or_else.empty() ? "" : " or --" + or_else);
  std::vector<std::string> fixed;
  for (const Setting& s : request.verb->settings)
    if (std::ranges::count(request.configured, s.name) >
            std::ranges::count(request.given, s.name) &&
        is_planned(s) && s.group != "Plan")
      fixed.push_back(fmt::format("{} {}", s.name, value_text(s)));
  plan_.configured = join(fixed, ", ");
  plan_.command = shell_word(program) + " train" + flags_for_train(request);
  return int(parallel::plan(own_.task(), plan_));
}

}  // namespace

void on_ranks(const LaunchOptions& o, int& argc, char**& argv,
              const std::function<void(World&)>& body) {
  check_launch(o);
  if (o.comm == "threads") {
    check_not_launched("--comm threads makes threads of one process the ranks");
    run_worlds(int(std::max<int64_t>(1, o.ranks)), body, world_options(o));
  } else {
    World world(argc, argv, world_options(o));
    body(world);
  }
}

int program(int argc, char** argv, ProgramOptions options) {
  return run_main(argc, argv,
                  [&](int count, char** words) { return Program(options).run(count, words); });
}

}  // namespace triax::parallel
