#include <algorithm>
#include <thread>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

/// True if the `train` command of a plan sets it on its own account, or cannot have it.
bool is_planned(const Setting& s) { return s.group == "Plan" || s.plan == InPlan::sought; }

/// Returns flags for settings of the request that the plan does not decide. `train` refuses a file
/// that has settings of `plan` alone: its other settings become flags.
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

/// Returns the settings that a plan looks for but the configuration file fixes: `micro-batch 4`.
std::vector<std::string> fixed_by_file(const Request& request) {
  std::vector<std::string> fixed;
  for (const Setting& s : request.verb->settings)
    if (std::ranges::count(request.configured, s.name) >
            std::ranges::count(request.given, s.name) &&
        is_planned(s) && s.group != "Plan")
      fixed.push_back(fmt::format("{} {}", s.name, value_text(s)));
  return fixed;
}

Exit run_plan(const ProgramOptions& p, PlanOptions& o, const Invocation& call, const UsePlan& use) {
  check_not_launched("plan runs in one process");
  take_request(o, call);
  check_needs(p, call.request, std::max(double(o.ranks), o.train.step.mesh.least_size()));
  if (use) use(p.task(), o);
  else (void)plan(p.task(), o);
  return Exit::ok;
}

Settings plan_settings(PlanOptions& o, const ProgramOptions& p) {
  SettingGroup own("Plan");
  own.add("ranks|world-size|nproc|nproc-per-node|num-gpus|ngpus|gpus", "N", "ranks to plan for",
          &o.ranks, {.range = {0, 65536}, .shown = "those of the mesh"})
      .add("hardware", "NAME|FILE",
           fmt::format("what a rank runs on: {}, or a TOML file as `calibrate` writes it",
                       join(hardware_names(), ", ")),
           &o.hardware)
      .add("memory", "SIZE", "what tensors of a rank may take, like 72GB", &o.memory,
           {.shown = "the hardware's memory, less its reserve"})
      .add("top", "N", "rows to print", &o.top, {.range = {1, huge}})
      .add("json", "", "print only an object for each candidate whose memory was rehearsed",
           &o.json)
      .add("check", "", "measure the best plan: run one step on threads here and compare memory",
           &o.check);
  Settings training = train_settings(o.train);
  std::erase_if(training, [](auto& s) { return s.plan == InPlan::absent; });
  for (Setting& s : training) {
    auto is = [&](std::initializer_list<const char*> names) {
      return std::ranges::count(names, s.name) > 0;
    };
    if (is({"dp", "pp", "tp", "cp", "ep", "micro-batch"})) s.range.min = 0;
    if (is({"cp", "ep"})) s.help += "; 0: all are tried";
    if (is({"dp", "pp", "tp"})) s.shown = "all that the ranks allow";
    if (is({"zero", "schedule", "chunks", "sequence-parallel"})) s.shown = "all are tried";
    if (is({"recompute"})) s.shown = "all but block-split are tried";
    if (is({"micro-batch"}))
      s.shown = o.train.step.micro_batch > 0 ? "" : "powers of two and all of a replica, up to 64";
    if (is({"global-batch"})) s.shown = "micro-batch (1 if it is open) x ranks";
  }
  return joined({own, p.settings, training});
}

}  // namespace

void check_needs(const ProgramOptions& p, const Request& request, double ranks) {
  auto here = std::max(double(std::thread::hardware_concurrency()), double(gpu_count()));
  auto has = [&](const std::string& name) {
    return std::ranges::count(request.given, name) + std::ranges::count(request.configured, name);
  };
  for (auto& [name, example, or_else] : p.plan_needs)
    check_input(ranks <= here || has(name) > 0 || has(or_else) > 0, Exit::config,
                "{}: --{} is not given for {} ranks, more than this machine's {}\n"
                "  Its default is for small runs. Add --{} N{}, as the run will have it.",
                request.verb->name, name, ranks, here, name,
                or_else.empty() ? "" : " or --" + or_else);
}

void take_request(PlanOptions& o, const Invocation& call) {
  o.given = call.request.given;
  o.given.insert(o.given.end(), call.request.configured.begin(), call.request.configured.end());
  o.configured = fixed_by_file(call.request);
  o.command = shell_word(call.argv[0]) + " train" + flags_for_train(call.request);
}

Verb plan_verb(ProgramOptions& p, std::string_view asked, const UsePlan& use) {
  auto o = std::make_shared<PlanOptions>();
  o->train = p.train;
  leave_open(o->train.step, {"cp", "ep", "chunks", "zero", "recompute", "sequence-parallel"});
  o->train.step.global_batch = 0;
  if (asked == "plan" && p.plan_defaults) p.plan_defaults(o->train);
  std::string example =
      p.name + " plan --ranks 64 --hardware h100 --precision bf16 --global-batch 512";
  for (auto& need : p.plan_needs) example += fmt::format(" --{} {}", need.name, need.example);
  return {.name = "plan",
          .what = "Predicts memory and time of a step for every way to train on so many ranks.",
          .settings = plan_settings(*o, p),
          .examples = {example},
          .run = [&p, o, use](const Invocation& call) { return int(run_plan(p, *o, call, use)); }};
}

}  // namespace triax::parallel
