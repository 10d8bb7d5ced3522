#include "triax/parallel/pipeline/synthesis/schedule_file.h"

#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/parallel/pipeline/check_schedule.h"

namespace triax::parallel {
namespace {

constexpr uint64_t largest_file = uint64_t{64} << 20;
constexpr int most_stages = 1024, most_chunks = 64, most_micros = 4096;
constexpr const char* letters = "FABWOR";  // by Action::Kind

std::string text_in(const std::string& path) { return disk().read(path, largest_file); }

nn::JsonReader reader(const std::string& text, const std::string& path) {
  return {text, printable(path), "the schedule", 4};
}

int size_in(const nn::JsonReader& all, const char* key, int most) {
  nn::JsonReader at = all.at(key);
  auto size = int(at.number(uint64_t(most)));
  at.require(size > 0, "is 0; expected at least 1");
  return size;
}

StageTimes times_in(const nn::JsonReader& all) {
  StageTimes times;
  for (const nn::JsonReader& stage : all.at("times").elements(most_stages * most_chunks)) {
    auto row = stage.elements(5);
    stage.require(row.size() >= 4,
                  "is not [forward, input, weight, latency] or [.., latency, copy]");
    times.push_back({row[0].real(), row[1].real(), row[2].real(), row[3].real(),
                     row.size() == 5 ? row[4].real() : 0});
  }
  return times;
}

/// Reads `F0.3`, the forward of micro-batch 3 through chunk 0, which may not exist.
std::optional<Action> action_of(std::string_view word) {
  size_t kind = std::string_view(letters).find(word[0]), dot = word.find('.');
  if (kind == word.npos || dot == word.npos || dot == 0) return {};
  Action a{Action::Kind(kind)};
  bool fine =
      parse_number(word.substr(1, dot - 1), a.chunk) && parse_number(word.substr(dot + 1), a.micro);
  return fine ? std::optional(a) : std::nullopt;
}

Actions actions_in(const nn::JsonReader& list) {
  std::string text = list.text();
  std::string_view left = text;
  Actions all;
  while (!left.empty()) {
    std::string_view word = left.substr(0, left.find(' '));
    auto action = word.empty() ? std::nullopt : action_of(word);
    if (!action)
      list.require(false,
                   fmt::format("has `{}` at position {}; expected F, A, B, W, O or R, chunk.micro, "
                               "as in F0.3, one blank between two",
                               printable(std::string(word)), all.size()));
    all.push_back(*action);
    left.remove_prefix(std::min(left.size(), word.size() + 1));
  }
  return all;
}

/// Reports an error in a file as damage: it is no mistake in the run's configuration.
template <class Check> void as_damage(const std::string& path, Check check) try {
  check();
} catch (const Error& e) {
  fail(Exit::data, "{}: {}", printable(path), e.what());
}

bool same(double a, double b) { return std::fabs(a - b) <= 1e-6 * std::fabs(b); }

/// Checks everything that the file claims.
void check_claims(const ScheduleFile& f, const nn::JsonReader& all) {
  auto peak = peak_memory(f.lists, f.shape, f.budget.hold);
  for (size_t s = 0; s < peak.size(); ++s)
    all.at("lists").require(peak[s] <= f.budget.cap[s] + 1e-9,
                            fmt::format("hold {:g} activations on stage {}; expected at most its "
                                        "cap, {:g}",
                                        peak[s], s, f.budget.cap[s]));
  double cost = cost_of(simulate(f.lists, f.shape, f.times), f.budget.objective);
  all.at("cost").require(same(f.cost, cost), fmt::format("is {}; the lists cost {}", f.cost, cost));
  double bound = lower_bound(f.shape, f.times, f.budget);
  all.at("bound").require(f.bound > 0 && meets(f.bound, bound),
                          fmt::format("is {}; what is proven is {}", f.bound, bound));
}

std::string text_of(const Actions& list) {
  std::string text;
  for (const Action& a : list)
    text += fmt::format("{}{}{}.{}", text.empty() ? "" : " ", letters[a.kind], a.chunk, a.micro);
  return text;
}

}  // namespace

std::string schedule_json(const ScheduleFile& f) {
  std::vector<std::string> times, lists;
  for (const Durations& t : f.times)
    times.push_back(fmt::format("[{},{},{},{}{}]", t.forward, t.backward_input, t.backward_weight,
                                t.latency, t.copy > 0 ? fmt::format(",{}", t.copy) : ""));
  for (const Actions& list : f.lists) lists.push_back('"' + text_of(list) + '"');
  return fmt::format(
      "{{\"stages\":{},\"chunks\":{},\"micros\":{},\"placement\":\"{}\",\"hold\":{},"
      "\"objective\":\"{}\",\n\"cap\":[{}],\n\"times\":[{}],\n\"cost\":{},\"bound\":{},\n"
      "\"lists\":[\n{}]}}\n",
      f.shape.stages, f.shape.chunks, f.shape.micros, name(f.shape.placement), f.budget.hold,
      name(f.budget.objective), join(f.budget.cap, ","), join(times, ","), f.cost, f.bound,
      join(lists, ",\n"));
}

ScheduleFile parse_schedule(const std::string& text, const std::string& path) {
  nn::JsonReader all = reader(text, path);
  ScheduleFile f;
  f.shape = {size_in(all, "stages", most_stages), size_in(all, "chunks", most_chunks),
             size_in(all, "micros", most_micros)};
  std::string placement = all.at("placement").text();
  for (auto each : {Placement::ring, Placement::v})
    if (placement == name(each)) f.shape.placement = each;
  all.at("placement").require(placement == name(f.shape.placement), "is not `ring` or `v`");
  f.budget.hold = all.at("hold").real();
  std::string objective = all.at("objective").text();
  for (auto each : {Budget::longest_stage, Budget::makespan})
    if (objective == name(each)) f.budget.objective = each;
  all.at("objective").require(objective == name(f.budget.objective), "is not `span` or `makespan`");
  for (const nn::JsonReader& cap : all.at("cap").elements(size_t(f.shape.stages)))
    f.budget.cap.push_back(cap.real());
  f.times = times_in(all);
  f.cost = all.at("cost").real();
  f.bound = all.at("bound").real();
  for (const nn::JsonReader& list : all.at("lists").elements(size_t(f.shape.stages)))
    f.lists.push_back(actions_in(list));
  all.at("lists").require(std::ssize(f.lists) == f.shape.stages,
                          fmt::format("are {}; expected {}", f.lists.size(), f.shape.stages));
  as_damage(path, [&] {
    check_times(f.shape, f.times);
    check_budget(f.shape, f.budget);
    check_schedule([&](auto&, int stage) { return f.lists[size_t(stage)]; }, f.shape);
  });
  check_claims(f, all);
  return f;
}

ScheduleFile read_schedule(const std::string& path) { return parse_schedule(text_in(path), path); }

StageTimes read_times(const std::string& path) { return times_in(reader(text_in(path), path)); }

bool is_schedule_file(const std::string& name) { return name.ends_with(".json"); }

Schedule schedule_from(const ScheduleFile& f, const std::string& path) {
  auto lists_of_stage = [shape = f.shape, lists = f.lists, path](const PipelineShape& s,
                                                                 int stage) {
    check_input(s == shape, Exit::config,
                "schedule {}: found for {} stages, {} chunk{}, {} micro-batches; this run has {}, "
                "{}, {}\n  Valid: --pp {} --chunks {} and {} micro-batches (`schedule`: --micros; "
                "else --global-batch / micro-batch / dp);\n  or search for a schedule of this "
                "shape: schedule --search --pp {} --micros {} --save FILE",
                printable(path), shape.stages, shape.chunks, shape.chunks == 1 ? "" : "s",
                shape.micros, s.stages, s.chunks, s.micros, shape.stages, shape.chunks,
                shape.micros, s.stages, s.micros);
    return lists.at(size_t(stage));
  };
  return {lists_of_stage, f.shape.placement, f.shape.chunks};
}

}  // namespace triax::parallel
