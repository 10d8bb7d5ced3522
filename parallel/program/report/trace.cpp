#include "parallel/program/report/trace.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "core/check.h"
#include "nn/json.h"

namespace triax::parallel::report {
namespace {

constexpr size_t most_ranks = 65536;
constexpr int most_micros = 1 << 20;

RankTime rank_time(const nn::JsonReader& r) {
  auto whole = [&](const char* key) { return int(r.at(key).number(most_ranks)); };
  auto seconds = [&](const char* key) { return r.at(key).real(); };
  return {whole("rank"),     whole("dp"),     whole("pp"),
          whole("tp"),       seconds("busy"), seconds("communicating"),
          seconds("waiting")};
}

struct Slice {
  int stage;
  std::string name, kind;
  double begin, end;  // seconds
  bool within(const Slice& outer) const {
    return stage == outer.stage && begin >= outer.begin && end <= outer.end;
  }
};

/// `B3b`, `F12` or `W0.30` as an action; nothing for another text.
std::optional<Action> action_named(const std::string& text) {
  constexpr std::string_view kinds = "FBIW";
  size_t kind = text.empty() ? kinds.npos : kinds.find(text[0]);
  if (kind == kinds.npos) return {};
  Action a{Action::Kind(kind)};
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data() + 1, end, a.micro);
  if (error != std::errc() || a.micro < 0 || a.micro >= most_micros) return {};
  if (at == end) return a;
  if (*at == '.') at = std::from_chars(at + 1, end, a.chunk).ptr;
  else a.chunk = *at++ - 'a';
  bool whole = at == end && a.chunk >= 0 && a.chunk < 4096;
  return whole ? std::optional(a) : std::nullopt;
}

/// The file by lines: what comes before the events, then an event a line.
class TraceFile {
 public:
  explicit TraceFile(const std::string& path) : path_(path), in_(path) {}

  void expect(bool ok, const char* otherwise) const {
    check_input(ok, Exit::data,
                "{}:{}: {}; expected a trace of --profile\n  Give a run that was profiled, or "
                "profile this one again.",
                path_, number_, otherwise);
  }

  Trace head() {
    std::string text;
    while (next() && !line_.starts_with("\"traceEvents\":[")) text += line_ + "\n";
    expect(bool(in_) && text.ends_with(",\n"), "it has no traceEvents");
    nn::JsonReader all(text.substr(0, text.size() - 2) + "}", path_, "the trace", 3);
    auto steps = all.at("steps").sizes(2);
    expect(steps.size() == 2, "it has no first and last step");
    Trace trace{.first = steps[0], .last = steps[1]};
    if (all.has("schedule")) trace.schedule = all.at("schedule").text();
    if (all.has("placement") && all.at("placement").text() == name(Placement::v))
      trace.placement = Placement::v;
    for (auto& r : all.at("ranks").elements(most_ranks)) trace.ranks.push_back(rank_time(r));
    return trace;
  }

  /// Those slices of stages that tell of the pipeline. `stage_of`: ranks by stage.
  std::vector<Slice> slices(const std::map<int, int>& stage_of) {
    std::vector<Slice> all;
    bool ended = false;
    while (!ended && next()) {
      ended = line_.ends_with("]}");
      line_.resize(line_.find_last_of('}') + 1 - (ended && line_.ends_with("}]}") ? 2 : 0));
      if (of_pipeline()) add(all, stage_of);
    }
    expect(ended, "it ends within its events");
    return all;
  }

 private:
  bool next() { return ++number_, bool(std::getline(in_, line_)); }
  bool of_pipeline() const {
    auto has = [&](const char* part) { return line_.find(part) != line_.npos; };
    return has(R"("ph":"X")") &&
           (has(R"("cat":"action")") || has(R"("name":"step)") || has(" link "));
  }
  void add(std::vector<Slice>& all, const std::map<int, int>& stage_of) const {
    nn::JsonReader e(line_, fmt::format("{}:{}", path_, number_), "the event", 2);
    auto found = stage_of.find(int(e.at("pid").number(most_ranks)) - 1);
    if (found == stage_of.end()) return;
    double begin = e.at("ts").real() * 1e-6, takes = e.at("dur").real() * 1e-6;
    expect(takes >= 0, "an event that ends before it begins");
    all.push_back({found->second, e.at("name").text(), e.at("cat").text(), begin, begin + takes});
  }

  std::string path_, line_;
  std::ifstream in_;
  int64_t number_ = 0;
};

/// The step of each stage, without its validation and checkpoint: the slice `step` in `step N`.
std::vector<Slice> steps_of(const std::vector<Slice>& slices, int64_t number) {
  std::vector<Slice> whole, steps;
  for (auto& s : slices)
    if (s.name == fmt::format("step {}", number)) whole.push_back(s);
  for (auto& s : slices)
    if (s.name == "step" && std::ranges::any_of(whole, [&](auto& w) { return s.within(w); }))
      steps.push_back(s);
  return steps;
}

/// `shape`: stages and placement.
MeasuredPipeline pipeline_of(const std::vector<Slice>& slices, int64_t step,
                             const PipelineShape& shape) {
  MeasuredPipeline p{.step = step, .shape = shape};
  auto steps = steps_of(slices, step);
  for (auto& s : slices) {
    auto action = s.kind == "action" ? action_named(s.name) : std::nullopt;
    if (!action || std::ranges::none_of(steps, [&](auto& outer) { return s.within(outer); }))
      continue;
    p.actions.push_back({s.stage, *action, s.begin, s.end});
    p.shape.chunks = std::max(p.shape.chunks, action->chunk + 1);
    p.shape.micros = std::max(p.shape.micros, action->micro + 1);
  }
  auto when = [](auto& a) { return std::pair(a.stage, a.begin); };
  std::ranges::stable_sort(p.actions, {}, when);
  for (auto& s : slices) {
    if (s.kind != "waiting") continue;
    auto after = std::ranges::upper_bound(p.actions, when(s), {}, when);
    if (after == p.actions.begin()) continue;
    TimedAction& a = *(after - 1);
    if (a.stage == s.stage && s.end <= a.end) a.begin = s.end;  // it received
  }
  double zero = INFINITY;
  for (auto& a : p.actions) zero = std::min(zero, a.begin);
  for (auto& a : p.actions) a.begin -= zero, a.end -= zero, p.time = std::max(p.time, a.end);
  for (auto& s : steps)
    for (auto& other : steps) p.whole = std::max(p.whole, s.end - other.begin);
  return p;
}

}  // namespace

std::optional<Trace> read_trace(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return {};
  TraceFile file(path);
  Trace trace = file.head();
  std::map<int, int> stage_of;
  for (auto& r : trace.ranks)
    if (r.dp == 0 && r.tp == 0) stage_of[r.rank] = r.pp;
  std::set<int> stages;
  for (auto& [rank, stage] : stage_of) stages.insert(stage);
  file.expect(!stages.empty() && stages.size() == stage_of.size() &&
                  *stages.rbegin() + 1 == int(stages.size()),
              "its ranks are no mesh");
  auto slices = file.slices(stage_of);
  if (stage_of.size() > 1) {
    auto pipeline = pipeline_of(slices, trace.last,
                                {.stages = int(stage_of.size()), .placement = trace.placement});
    if (!pipeline.actions.empty()) trace.pipeline = std::move(pipeline);
  }
  return trace;
}

}  // namespace triax::parallel::report
