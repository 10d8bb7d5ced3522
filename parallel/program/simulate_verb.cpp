#include <algorithm>
#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/plan/step_time.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/simulation/simulation.h"

namespace triax::parallel {
namespace {

struct SimulateOptions {
  TrainOptions train;
  int64_t ranks = 0;  ///< 0: those of the mesh
  std::string hardware = "h100";
  std::string slow_rank, slow_link, dead_rank;  ///< `3=1.5,7=2`: a number for each of some ranks
  std::string trace;                            ///< a path; empty: none
};

/// Reads `3=1.5,7=2`. Throws Error 78 that names the flag.
std::map<int, double> by_rank(const char* flag, const std::string& text, int ranks) {
  std::map<int, double> all;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(',', at), text.size()), is = std::min(text.find('=', at), end);
    int rank = -1;
    double value = -1;
    bool fine = is < end && parse_number(text.substr(at, is - at), rank) &&
                parse_number(text.substr(is + 1, end - is - 1), value) && std::isfinite(value);
    check_input(fine && rank >= 0 && rank < ranks && value >= 0, Exit::config,
                "{}={}; expected RANK=X with a rank below {} and a number from 0, like 3=1.5", flag,
                printable(text), ranks);
    all[rank] = value;
    at = end + 1;
  }
  return all;
}

Exit simulate(const ProgramOptions& p, SimulateOptions& o, const Invocation& call) {
  check_not_launched("simulate runs in one process");
  TrainOptions& train = o.train;
  double asked = std::max(double(o.ranks), train.step.mesh.least_size());
  check_input(asked <= 16384, Exit::config, "simulate: {} ranks; expected 16384 at most", asked);
  int ranks = int(asked);
  check_needs(p, call.request, ranks);
  Hardware hardware = hardware_named(o.hardware);
  train.launch.device = hardware.device;  // some settings are refused on it
  resolve(train, ranks);
  check_options(train, ranks);
  SimulationOptions wanted{.train = train,
                           .hardware = hardware,
                           .injected = {by_rank("slow-rank", o.slow_rank, ranks),
                                        by_rank("slow-link", o.slow_link, ranks),
                                        by_rank("dead-rank", o.dead_rank, ranks)},
                           .trace = !o.trace.empty()};
  if (wanted.trace) {
    check_input(!disk().exists(o.trace), Exit::cannot_write,
                "trace={}: this file exists\n  Choose another --trace, or move it away.",
                printable(o.trace));
    check_output("trace", o.trace);
  }
  Task task = p.task();
  auto simulated = simulate(task, wanted);
  double seconds = step_seconds(simulated);
  double planned = StepTimes(task, wanted.hardware)(train.step).total();
  fmt::print(
      "{} on {}, {} ranks\nseconds of a step by stage, mean (and largest) of its ranks:\n\n{}\n"
      "step {:.4f} s; `plan` predicts {:.4f} s ({:+.1f} %)\n",
      str(train.step.mesh), wanted.hardware.name, ranks, stage_table(simulated, train.step.mesh),
      seconds, planned, 100 * (planned / seconds - 1));
  double most =
      double(std::ranges::max(simulated, {}, [](auto& r) { return r.demand.peak; }).demand.peak);
  if (most > hardware.room())
    fmt::print("memory: {} of tensors do not fit into {}\n", show_bytes(most),
               show_bytes(hardware.room()));
  if (wanted.trace) replace_file(o.trace, trace_of(simulated, train.step));
  return Exit::ok;
}

}  // namespace

Verb simulate_verb(ProgramOptions& p, std::string_view asked) {
  auto o = std::make_shared<SimulateOptions>();
  o->train = p.train;
  if (asked == "simulate" && p.plan_defaults) p.plan_defaults(o->train);
  SettingGroup own("Simulation");
  own.add("ranks|world-size|nproc|num-gpus|gpus", "N", "ranks to simulate", &o->ranks,
          {.range = {0, 16384}, .shown = "those of the mesh"})
      .add("hardware", "NAME|FILE",
           fmt::format("what a rank runs on: {}, or a TOML file as `calibrate` writes it",
                       join(hardware_names(), ", ")),
           &o->hardware)
      .add("slow-rank", "RANK=X,..", "ranks whose kernels take X times as long", &o->slow_rank,
           {.shown = "none"})
      .add("slow-link", "RANK=X,..", "ranks whose transfers take X times as long", &o->slow_link,
           {.shown = "none"})
      .add("dead-rank", "RANK=S,..", "ranks that end after S seconds", &o->dead_rank,
           {.shown = "none"})
      .add("trace", "FILE", "write what the stages of rank 0's pipeline do, for Perfetto",
           &o->trace, {.shown = "none"});
  Settings training = train_settings(o->train);
  std::erase_if(training, [](auto& s) { return s.plan == InPlan::absent; });
  return {.name = "simulate",
          .what = "Simulates a step of many ranks on other hardware, rank by rank.",
          .settings = joined({own, p.settings, training}),
          .examples = {p.name + " simulate --ranks 64 --pp 4 --tp 8 --hardware h100 --precision "
                                "bf16 --global-batch 512"},
          .run = [&p, o](const Invocation& call) { return int(simulate(p, *o, call)); }};
}

}  // namespace triax::parallel
