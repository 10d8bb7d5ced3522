#include "triax/parallel/program/program.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/version.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/agreement.h"
#include "triax/parallel/train/runs/initial_weights.h"

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

/// Prints a page, and the `section` of each verb that takes words. Those with defaults of their own
/// come last, since these may change the model for all.
int print_all(ProgramOptions& p, const CommandLine& line, std::string page,
              std::string (*section)(const std::string&, const Verb&)) {
  auto add = [&](const Verb& verb) {
    if (!verb.settings.empty() || !verb.operands.empty()) page += section(p.name, verb);
  };
  for (auto& verb : line.verbs)
    if (verb.name != "plan" && verb.name != "simulate" && verb.name != "parity" &&
        verb.name != "evaluate")
      add(verb);
  add(plan_verb(p, "plan"));
  add(simulate_verb(p, "simulate"));
  add(parity_verb(p, "parity"));
  add(evaluate_verb(p, "evaluate"));
  std::fputs(page.c_str(), stdout);
  return 0;
}

Verb flags_verb(ProgramOptions& p) {
  return {.name = "flags",
          .what = "Prints the table of all flags, in Markdown.",
          .run = [&p](const Invocation& call) {
            std::string page = fmt::format(
                "# The flags of {}\n\nMade by `{} flags`; do not edit. Every flag is "
                "also a key of the TOML file that\n`--config` names: `--micro-batch 8` is "
                "`micro-batch = 8`, `--data FILE` is `data = \"FILE\"`.\n",
                p.name, p.name);
            return print_all(p, call.line, page,
                             [](auto& name, auto& verb) { return "\n" + markdown(name, verb); });
          }};
}

Verb manual_verb(ProgramOptions& p) {
  return {.name = "manual",
          .what = "Prints the man page, in roff.",
          .run = [&p](const Invocation& call) {
            return print_all(p, call.line, man_page(call.line), man_page);
          }};
}

/// Returns the verb that the words ask for, or for help with.
std::string_view asked_for(std::span<const std::string> words) {
  auto is_help = [](const std::string& w) { return w == "help" || w == "--help" || w == "-h"; };
  if (words.empty()) return {};
  return is_help(words[0]) && words.size() > 1 ? words[1] : words[0];
}

CommandLine command_line(ProgramOptions& p, std::string_view asked) {
  std::vector<Verb> verbs{train_verb(p)};
  auto add = [&](std::vector<Verb> more) {
    verbs.insert(verbs.end(), std::make_move_iterator(more.begin()),
                 std::make_move_iterator(more.end()));
  };
  add(p.verbs);
  add({evaluate_verb(p, asked), parity_verb(p, asked), plan_verb(p, asked), simulate_verb(p, asked),
       replay_verb(p), calibrate_verb(p), schedule_verb(p)});
  add(checkpoint_verbs());
  add({flags_verb(p), manual_verb(p)});
  std::string commit = *triax::commit() ? fmt::format(", commit {}", triax::commit()) : "";
  return {p.name, fmt::format("triax {}{}, build {}", version(), commit, build_id()),
          std::move(verbs)};
}

int call(ProgramOptions& p, int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  CommandLine line = command_line(p, asked_for(words));
  if (!words.empty() && words[0] == "complete") {  // for shells; not among the verbs
    std::fputs(completions(line, std::span(words).subspan(1)).c_str(), stdout);
    return 0;
  }
  Request request = parse(line, words, terminal_columns());
  if (!request.verb) {
    std::fputs(request.text.c_str(), request.code == Exit::ok ? stdout : stderr);
    return int(request.code);
  }
  try {
    return request.verb->run({request, line, argc, argv});
  } catch (const Error& e) {
    if (e.code() != Exit::not_found) throw;
    throw e.saying(e.what() + paths_named(e.what(), request));
  }
}

/// Returns the exit code. A verb's output must have arrived, but training goes on without a reader.
int run(ProgramOptions& p, int argc, char** argv) {
  std::string verb = argc > 1 ? argv[1] : "";
  int code = 0;
  try {
    code = call(p, argc, argv);
  } catch (const std::system_error&) {  // thrown by fmt::print, which no training calls
    if (verb == "train" || !std::ferror(stdout)) throw;
  }
  bool printed = std::fflush(stdout) == 0 && !std::ferror(stdout);
  check_input(verb == "train" || printed, Exit::cannot_write, "{}: cannot write to stdout: {}",
              verb.empty() ? p.name : verb, std::strerror(errno));
  return code;
}

}  // namespace

std::string take_checkpoint(ProgramOptions& p, std::string path, const Invocation& call) {
  if (p.import) path = p.import(path);
  CheckpointState state = take_model_settings(p.settings, path);
  if (p.init) p.init(path, state);
  (void)parse(call.line, std::vector<std::string>(call.argv + 1, call.argv + call.argc),
              terminal_columns());
  return path;
}

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

void check_output(const std::string& flag, const std::string& path) {
  std::string folder = parent_directory(path), trial = folder + "/.tmp-" + unique_suffix();
  check_input(disk().is_directory(folder), Exit::cannot_write,
              "{}={}: there is no directory {}\n  Make it, or choose another --{}.", flag,
              printable(path), printable(folder), flag);
  try {
    disk().replace(trial, "");  // leaves nothing if it fails
    disk().remove(trial);
  } catch (const Error& e) {
    std::string_view what = e.what();
    fail(Exit::cannot_write, "{}={}: no file can be made in {}: {}\n  Choose another --{}.", flag,
         printable(path), printable(folder), what.substr(what.rfind(": ") + 2), flag);
  }
}

int program(int argc, char** argv, ProgramOptions options) {
  return run_main(argc, argv, [&](int count, char** words) { return run(options, count, words); });
}

}  // namespace triax::parallel
