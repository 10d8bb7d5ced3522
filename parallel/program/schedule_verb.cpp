#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/pipeline/synthesis/synthesis.h"
#include "triax/parallel/pipeline/timeline.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

/// A comparison of schedules for the same stages and micro-batches with one that was found.
struct Comparison {
  struct Row {
    std::string name;
    int chunks = 1;
    Placement placement = Placement::ring;
    double cost = 0;           ///< Budget::objective
    double bubble = 0;         ///< share of the cost in which the busiest stage is idle
    std::vector<double> peak;  ///< per stage, in activations of a whole stage
  };
  std::vector<Row> rows;  ///< of the schedules that the shape allows; the found one last
  ScheduleFile found;
  /// Returns the bubble of a schedule that costs found.bound.
  double best_bubble() const { return 1 - busiest(found.shape, found.times) / found.bound; }
};

/// Returns the times of the virtual stages of a shape, or none.
using TimesOf = std::function<StageTimes(const PipelineShape&)>;

constexpr const char* found_name = "found";

/// Returns `3`, or `1 to 8` where stages differ.
std::string caps(const std::vector<double>& cap) {
  auto [least, most] = std::ranges::minmax(cap);
  return least == most ? fmt::format("{:g}", most) : fmt::format("{:g} to {:g}", least, most);
}

std::string verdict(const Comparison& c) {
  const Comparison::Row& found = c.rows.back();
  if (!meets(found.cost, c.found.bound))
    return fmt::format("found: {:.3g}% above the bound\n", 100 * (found.cost / c.found.bound - 1));
  std::string text = "found: optimal, as cheap as the bound\n";
  for (const Comparison::Row& r : c.rows)
    if (&r != &found && r.chunks == found.chunks && r.placement == found.placement &&
        meets(r.cost, found.cost) && within(c.found.budget, r.peak))
      text += fmt::format("{} is optimal\n", r.name);
  return text;
}

Comparison::Row row_of(const std::string& name, const ScheduleFile& s) {
  return {name,
          s.shape.chunks,
          s.shape.placement,
          s.cost,
          1 - busiest(s.shape, s.times) / s.cost,
          peak_memory(s.lists, s.shape, s.budget.hold)};
}

/// Returns a schedule for the stages, micro-batches and memory of `found`, with its cost and bound.
/// No lists, if its shape has no times or does not fit.
ScheduleFile beside(const ScheduleFile& found, const Schedule& schedule, const TimesOf& times) {
  ScheduleFile s = found;
  s.shape.chunks = schedule.chunks;
  s.shape.placement = schedule.placement;
  s.lists.clear();
  s.times = times(s.shape);
  if (!s.times.empty()) s.lists = lists_that_fit(schedule, s.shape);
  if (s.lists.empty()) return s;
  if (offloads(s.times)) {
    auto lists = offloaded(s.lists, s.shape, s.times, s.budget);
    if (!lists.empty()) s.lists = std::move(lists);
  }
  s.cost = cost_of(simulate(s.lists, s.shape, s.times), s.budget.objective);
  s.bound = lower_bound(s.shape, s.times, s.budget);
  return s;
}

/// Compares. `times`: of the virtual stages of that shape; schedules for which it returns none are
/// left out. Of schedules with the same lists the first is shown.
Comparison compare(const std::map<std::string, Schedule>& schedules, const ScheduleFile& found,
                   const TimesOf& times) {
  Comparison c{{}, found};
  for (auto& [name, schedule] : schedules) {
    ScheduleFile s = beside(found, schedule, times);
    if (!s.lists.empty()) c.rows.push_back(row_of(name, s));
  }
  c.rows.push_back(row_of(found_name, found));
  return c;
}

/// Returns text for a terminal: a table, the bound, and the found one's distance from it.
std::string comparison_text(const Comparison& c) {
  const ScheduleFile& f = c.found;
  std::string text = fmt::format(
      "{} stages, {} micro-batches; a stage may hold {} activations; one counts {:g} from the "
      "input's backward to the weights'\ncost: {}\n\n{:<16} {:>10} {:>8}  activations held, stage "
      "by stage\n",
      f.shape.stages, f.shape.micros, caps(f.budget.cap), f.budget.hold,
      f.budget.objective == Budget::makespan
          ? "makespan, to the end of the last stage"
          : "span, the longest stage from its first begin to its last end",
      "schedule", "cost", "bubble");
  for (const Comparison::Row& r : c.rows) {
    auto peak = transformed(r.peak, [](double x) { return fmt::format("{:.4g}", x); });
    text += fmt::format("{:<16} {:>10.6g} {:>7.2f}%  {}{}\n", r.name, r.cost, 100 * r.bubble,
                        join(peak, " "), within(f.budget, r.peak) ? "" : ", too many");
  }
  text += fmt::format(
      "{:<16} {:>10.6g} {:>7.2f}%  no schedule of {} a stage{} costs less in this memory\n",
      "bound", f.bound, 100 * c.best_bubble(), counted(f.shape.chunks, "chunk"),
      f.shape.placement == Placement::v ? " in a V" : "");
  return text + verdict(c);
}

/// Returns one JSON object: the fields of ScheduleFile but its times and lists, `best_bubble`, and
/// `rows` of `name`, `chunks`, `cost`, `bubble`, `peak`.
std::string comparison_json(const Comparison& c) {
  std::vector<std::string> rows;
  for (const Comparison::Row& r : c.rows)
    rows.push_back(fmt::format(R"({{"name":{},"chunks":{},"cost":{},"bubble":{},"peak":[{}]}})",
                               nn::quoted(r.name), r.chunks, r.cost, r.bubble, join(r.peak, ",")));
  const ScheduleFile& f = c.found;
  return fmt::format(
      R"({{"stages":{},"micros":{},"hold":{},"objective":"{}","cap":[{}],"cost":{},"bound":{},)"
      R"("best_bubble":{},"rows":[{}]}})",
      f.shape.stages, f.shape.micros, f.budget.hold, name(f.budget.objective),
      join(f.budget.cap, ","), f.cost, f.bound, c.best_bubble(), join(rows, ","));
}

struct ScheduleOptions {
  std::string schedule = "1f1b";  ///< a name, or a path (is_schedule_file)
  PipelineShape shape = {4, 0, 8};
  bool json = false;
  std::string times = "1,1,1,0";  ///< F,B,W,C or F,B,W,C,O of a whole stage, or a path
  std::string scale;              ///< factors of the stages' times; empty: 1
  bool search = false;
  std::string memory = "1p";  ///< `1.5p`: 1.5 x stages activations; or their number
  Budget budget = {};         ///< its caps are `memory`
  int64_t seed = 1;
  std::string save;
};

/// Reads `1,1.5,2`: `count` positive numbers or 0. Throws Error 78 that begins with the flag.
std::vector<double> numbers(const char* flag, const std::string& text, int count) {
  std::vector<double> all;
  bool fine = true;
  for (const std::string& part : parts_of(text, ',')) {
    double& number = all.emplace_back();
    fine = fine && parse_number(part, number) && std::isfinite(number) && number >= 0;
  }
  check_input(fine && std::ssize(all) == count, Exit::config,
              "{}={}; expected {} numbers from 0, like {}", flag, printable(text), count,
              join(std::vector<double>(size_t(std::min(count, 5)), 1.5), ","));
  return all;
}

/// Returns the times of --times and --scale; nothing for chunks that a file has no times of.
StageTimes times_of(const ScheduleOptions& o, const PipelineShape& shape) {
  std::vector<double> scale(size_t(shape.stages), 1);
  if (!o.scale.empty()) scale = numbers("scale", o.scale, shape.stages);
  check_input(std::ranges::min(scale) > 0, Exit::config, "scale={}; expected numbers above 0",
              printable(o.scale));
  StageTimes times;
  if (is_schedule_file(o.times)) {
    times = read_times(o.times);
    if (std::ssize(times) != shape.virtual_stages() && shape.chunks != o.shape.chunks) return {};
    check_times(shape, times);
  } else {
    auto t = numbers("times", o.times, std::ranges::count(o.times, ',') == 4 ? 5 : 4);
    times = equal_stages(shape, {t[0], t[1], t[2], t[3], t.size() == 5 ? t[4] : 0});
  }
  for (int s = 0; s < shape.stages; ++s)
    for (int c = 0; c < shape.chunks; ++c) {
      Durations& t = times[size_t(shape.virtual_stage(s, c))];
      for (double* takes : {&t.forward, &t.backward_input, &t.backward_weight})
        *takes *= scale[size_t(s)];
    }
  check_times(shape, times);
  return times;
}

double cap_of(const ScheduleOptions& o) {
  bool per_stage = o.memory.ends_with('p');
  std::string number = o.memory.substr(0, o.memory.size() - size_t(per_stage));
  double cap = 0;
  check_input(parse_number(number, cap), Exit::config,
              "memory={}; expected activations per stage, as a number, 12, or in stages, 1.5p",
              printable(o.memory));
  return per_stage ? cap * o.shape.stages : cap;
}

void print(const Timeline& timeline, bool json) {
  if (json) fmt::print("{}\n", timeline_json(timeline));
  else print_folded(timeline_text(timeline, output_columns()) + "\n");
}

/// Returns the problems of a search: of --chunks, or else of one chunk and of two in a V, that of
/// the lower bound first.
std::vector<ScheduleFile> problems(const ScheduleOptions& o) {
  std::vector<ScheduleFile> all;
  for (int chunks : o.shape.chunks > 0 ? std::vector{o.shape.chunks} : std::vector{1, 2}) {
    ScheduleFile p{.shape = o.shape, .budget = o.budget};
    p.shape.chunks = chunks;
    p.shape.placement = chunks > 1 ? Placement::v : Placement::ring;
    p.budget.cap.assign(size_t(o.shape.stages), cap_of(o));
    p.times = times_of(o, p.shape);
    if (!p.times.empty()) all.push_back(p);
  }
  check_input(!all.empty(), Exit::config,
              "times={}: rows for neither {} stages nor {} virtual stages, two each in a V\n"
              "  Give four numbers for all, or a row for each.",
              printable(o.times), o.shape.stages, 2 * o.shape.stages);
  if (all.size() == 1) return all;
  for (ScheduleFile& p : all) {
    check_budget(p.shape, p.budget);
    p.bound = lower_bound(p.shape, p.times, p.budget);
    p.budget.effort = .5;
  }
  std::ranges::stable_sort(all, {}, &ScheduleFile::bound);
  return all;
}

/// Returns the best schedule of all problems, no worse than any of `schedules` in the same memory.
ScheduleFile best_of(const ScheduleOptions& o, const Schedules& schedules,
                     const SearchWatch& watch) {
  ScheduleFile best{.cost = std::numeric_limits<double>::infinity()};
  for (ScheduleFile& p : problems(o)) {
    if (meets(best.cost, p.bound)) continue;
    Synthesis s = synthesize(p.shape, p.times, p.budget, uint64_t(o.seed), watch);
    if (s.cost >= best.cost) continue;
    p.lists = s.lists, p.cost = s.cost, p.bound = s.bound;
    best = p;
  }
  if (o.shape.chunks > 0 && !offloads(best.times)) return best;
  for (const auto& [name, schedule] : schedules) {
    ScheduleFile s = beside(best, schedule, [&](auto& shape) { return times_of(o, shape); });
    if (s.lists.empty() || s.cost >= best.cost || (o.shape.chunks > 0 && s.shape != best.shape))
      continue;
    if (within(s.budget, peak_memory(s.lists, s.shape, s.budget.hold))) best = s;
  }
  return best;
}

void search(const ScheduleOptions& o, const Schedules& schedules) {
  SearchProgress progress;
  auto watch = [&](double share, double cost, double bound) {
    if (!progress.due()) return;  // most tries take less time than the text
    std::string best =
        std::isfinite(cost) ? fmt::format("best cost {:.6g}", cost) : "nothing found yet";
    progress.say(fmt::format("schedule: {:.0f} % of the search done, {}, lower bound {:.6g}",
                             100 * share, best, bound));
  };
  ScheduleFile found = best_of(o, schedules, watch);
  if (!o.save.empty()) disk().replace(o.save, schedule_json(found));
  Comparison beside = compare(schedules, found, [&](const PipelineShape& shape) {
    // Called before each schedule is simulated, which may take seconds.
    progress.say("schedule: search done; comparing with other schedules");
    return times_of(o, shape);
  });
  if (o.json) {
    fmt::print("{}\n", comparison_json(beside));
    return;
  }
  std::string path = o.save.empty() ? "found" : o.save;
  print(make_timeline(path, schedule_from(found, path), found.shape, found.times), false);
  print_folded(comparison_text(beside));
}

bool contains(const std::vector<std::string>& given, const char* flag) {
  return std::count(given.begin(), given.end(), flag) > 0;
}

/// Refuses flags that would change nothing.
void check_of_use(const ScheduleOptions& o, const std::vector<std::string>& given) {
  if (!o.search)
    for (const char* flag : {"memory", "hold", "objective", "tries", "seed", "save"})
      check_input(!contains(given, flag), Exit::config,
                  "{} without search\n  Expected --search --{} ..., or leave it out", flag, flag);
  check_input(!o.search || !contains(given, "schedule"), Exit::config,
              "search with schedule={}: a search compares all schedules with what it finds\n"
              "  Leave one out.",
              printable(o.schedule));
  if (!is_schedule_file(o.schedule)) return;
  for (const char* flag : {"times", "scale"})
    check_input(!contains(given, flag), Exit::config,
                "{} with schedule={}: the file has lists and times of its own\n  Leave one out.",
                flag, printable(o.schedule));
}

bool is_a_schedule(const std::string& path) try {
  (void)read_schedule(path);
  return true;
} catch (const Error&) {
  return false;
}

/// Refuses, before a search, a file that cannot be saved. Replaces nothing but a schedule.
void check_save(const std::string& path) {
  if (path.empty()) return;
  check_input(is_schedule_file(path), Exit::config, "save={}\n  Expected --search --save FILE.json",
              printable(path));
  check_input(!disk().exists(path) || is_a_schedule(path), Exit::cannot_write,
              "save={}: this file exists and is no schedule\n  Choose another --save, or move it "
              "away.",
              printable(path));
  check_output("save", path);
}

void show_file(const ScheduleOptions& o, const std::vector<std::string>& given) {
  ScheduleFile file = read_schedule(o.schedule);
  PipelineShape shape = o.shape;  // the given parts; the schedule's own for the rest
  if (!contains(given, "pp")) shape.stages = file.shape.stages;
  if (!contains(given, "micros")) shape.micros = file.shape.micros;
  if (shape.chunks == 0) shape.chunks = file.shape.chunks;
  shape.placement = file.shape.placement;
  Schedule schedule = schedule_from(file, o.schedule);
  print(make_timeline(o.schedule, schedule, shape, file.times), o.json);
  if (!o.json) print_folded(comparison_text({{row_of(o.schedule, file)}, file}));
}

/// Prints a schedule, or searches for one and prints it beside the others. `flags`: those given.
void show_schedule(const ScheduleOptions& given, const Schedules& schedules,
                   const std::vector<std::string>& flags) {
  ScheduleOptions o = given;
  check_of_use(o, flags);
  check_save(o.save);
  if (is_schedule_file(o.schedule) && !o.search) return show_file(o, flags);
  if (o.search) return search(o, schedules);
  const Schedule& chosen = schedules.at(o.schedule);
  o.shape.placement = chosen.placement;
  if (o.shape.chunks == 0) o.shape.chunks = chosen.chunks;
  print(make_timeline(o.schedule, chosen, o.shape, times_of(o, o.shape)), o.json);
}

Settings shown_settings(ScheduleOptions& o, const Schedules& schedules) {
  return SettingGroup("Schedule")
      .add("schedule", "NAME|FILE", "which; FILE: one that --save wrote, with its shape and times",
           &o.schedule, {.choices = names_of(schedules), .or_file = ".json"})
      .add("pp", "N", "pipeline stages", &o.shape.stages, {.range = {1, 1024}})
      .add("chunks", "N", "model chunks on each stage", &o.shape.chunks,
           {.range = {0, 64}, .shown = "1, or 2 for schedules of several"})
      .add("micros", "N", "micro-batches", &o.shape.micros, {.range = {1, 4096}})
      .add("times", "F,B,W,C[,O]|FILE",
           "time of a stage's forward, backward of the input, of the weights, latency of the link "
           "to the next stage, and time to copy an activation to host memory or back, with which "
           "--search offloads; or a JSON file with those of every stage: {\"times\": [[1, 1, "
           "0.5, 0.1], ..]}",
           &o.times)
      .add("scale", "X,X,..", "factor of each stage's times", &o.scale, {.shown = "1 for all"})
      .add("json", "", "print JSON for scripts/draw.py", &o.json);
}

Settings search_settings(ScheduleOptions& o) {
  return SettingGroup("Search")
      .add("search", "",
           "look for the best schedule within --memory, of one chunk per stage or two in a V, "
           "whichever is better without --chunks, and compare it with the rest",
           &o.search)
      .add("memory", "1.5p|N",
           "activations of one micro-batch that a stage may hold: N, or in stages, as 1.5p",
           &o.memory)
      .add("hold", "X",
           "share of an activation's memory that stays between backward of the input and backward "
           "of the weights",
           &o.budget.hold, {.range = {0, 1000}})
      .add("objective", "span|makespan",
           "what to minimise: the longest stage from its first begin to its last end, or the time "
           "until all stages have ended",
           choice(o.budget.objective,
                  {{"span", Budget::longest_stage}, {"makespan", Budget::makespan}}))
      .add("tries", "N", "schedules to look at", &o.budget.tries,
           {.range = {0, huge}, .shown = "as many as take some seconds"})
      .add("seed", "N", "of the search, which repeats itself for the same seed", &o.seed)
      .add("save", "FILE",
           "write what was found, for --schedule FILE; replaces a schedule, but no other file",
           &o.save, {.shown = "none"});
}

}  // namespace

Verb schedule_verb(ProgramOptions& p) {
  auto o = std::make_shared<ScheduleOptions>();
  const Schedules& schedules = p.train.step.schedules;
  return {.name = "schedule",
          .what = "Shows what every pipeline stage does when, or looks for a better schedule.",
          .settings = joined({shown_settings(*o, schedules), search_settings(*o)}),
          .run = [o, &schedules](const Invocation& call) {
            return show_schedule(*o, schedules, call.request.given), 0;
          }};
}

}  // namespace triax::parallel
