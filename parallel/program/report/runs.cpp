#include "parallel/program/report/runs.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "nn/json.h"
#include "parallel/settings/literals.h"
#include "parallel/train/run_directory.h"

namespace triax::parallel::report {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t small_file = 1 << 20;
constexpr size_t most_runs = 16;
constexpr size_t most_overflows = 10;  // that are listed

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// A text file of the run that may be missing.
std::string text_of(const std::string& path) {
  return is_file(path) ? disk().read(path, small_file) : "";
}

void add_line(RunFacts& run, const std::string& line, int64_t number) try {
  nn::JsonReader record(line, fmt::format("report: {}:{}", run.metrics, number), "the record", 1);
  auto step = double(record.at("step").number(uint64_t{1} << 52));
  auto& steps = run.columns["loss"].steps;
  (void)record.at("loss");
  record.require(steps.empty() || step > steps.back(),
                 fmt::format("has step {} after step {}", step, steps.empty() ? 0 : steps.back()));
  for (auto& [key, value] : record.members()) {
    constexpr double none = std::numeric_limits<double>::quiet_NaN();
    if (key == "step") continue;
    if (key == "overflow") {
      if (run.overflows.size() < most_overflows)
        run.overflows.push_back(fmt::format("step {}: {}", step, printable(value.text())));
    } else if (key == "skipped") {
      if (value.flag()) run.skipped.add(step, 0);
    } else if (key == "changed") {
      run.notes.push_back(fmt::format("Step {} began a run with other settings: {}.", step,
                                      printable(value.text())));
    } else {
      run.columns[key].add(step, value.is_null() ? none : value.real());
      if (key.ends_with("_per_second") && !key.starts_with("val_"))
        run.unit = key.substr(0, key.rfind("_per_second"));
    }
  }
} catch (const Error& e) {
  fail(e.code(),
       "{}\n  The file is damaged. Delete that line; what is after the newest checkpoint goes when "
       "the run is resumed.",
       e.what());
}

void read_metrics(RunFacts& run) {
  std::ifstream in(run.metrics);
  check_input(in.is_open(), Exit::io, "report: cannot read {}: {}", run.metrics,
              std::strerror(errno));
  int64_t number = 0;
  std::string line;
  while (std::getline(in, line) && !in.eof()) add_line(run, line, ++number);
  if (!line.empty() && in.eof())
    run.notes.push_back(fmt::format("The last line of {}, number {}, is cut and was left out.",
                                    run.metrics, number + 1));
  check_input(number > 0, Exit::not_found,
              "report: {} has no whole line yet; expected a run that has done a step\n"
              "  Wait for its first step, or leave {} out.",
              run.metrics, run.path);
}

/// All of them as resolved; a run of an earlier version has only what it was told.
void read_settings(RunFacts& run) {
  std::string text = text_of(run.path + "/settings.txt");
  if (text.empty()) text = text_of(run.path + "/config.toml");
  for (auto& [name, literal] : saved_settings(CheckpointState{{"settings", text}}))
    run.settings[name] = without_quotes(literal);
}

}  // namespace

std::string metrics_of(const std::string& run) {
  std::string said = text_of(run + "/metrics_path"), own = run + "/metrics.jsonl";
  said = said.substr(0, said.find('\n'));
  bool copied = fs::path(said).filename() == "metrics.jsonl" && is_file(own) &&
                is_file(fs::path(said).parent_path() / "metrics_path");  // said is another run's
  std::string file = is_file(said) && !copied ? said : own;
  return is_file(file) ? file : "";
}

const Points& RunFacts::column(const std::string& key) const {
  static const Points none;
  auto found = columns.find(key);
  return found == columns.end() ? none : found->second;
}

std::string RunFacts::setting(const std::string& key) const {
  auto found = settings.find(key);
  return found == settings.end() ? "?" : found->second;
}

double number_of(const RunFacts& run, const std::string& key) {
  std::string text = run.setting(key);
  double number = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() ? number : 0;
}

RunFacts read_steps(const std::string& path) {
  check_input(exists(path), Exit::not_found,
              "report: there is no {}; expected a run directory, which train --out names", path);
  RunFacts run{.path = path};
  fs::path whole = fs::absolute(path).lexically_normal();  // of `.` too, and of `runs/mine/`
  run.name = (whole.has_filename() ? whole : whole.parent_path()).filename().string();
  run.metrics = metrics_of(path);
  bool has = disk().is_directory(path) && !run.metrics.empty();
  check_input(has, exists(path + "/config.toml") ? Exit::not_found : Exit::data,
              "report: {} has no metrics.jsonl; expected a run directory, which train --out names",
              path);
  read_metrics(run);
  read_settings(run);
  run.host = text_of(path + "/lock");
  return run;
}

RunFacts read_run(const std::string& path) {
  RunFacts run = read_steps(path);
  run.trace = read_trace(path + "/trace.json");
  return run;
}

std::vector<RunFacts> read_runs(const std::vector<std::string>& paths) {
  check_input(paths.size() <= most_runs, Exit::usage,
              "report: {} runs; expected at most {}, whose colors can be told apart", paths.size(),
              most_runs);
  std::set<fs::path> places;
  std::map<std::string, int> names;
  std::vector<RunFacts> runs;
  for (auto& path : paths) {
    runs.push_back(read_run(path));
    ++names[runs.back().name];
    check_input(places.insert(fs::canonical(path)).second, Exit::usage, "report: {} is given twice",
                path);
    const RunFacts &first = runs.front(), &last = runs.back();
    check_input(first.unit == last.unit, Exit::data,
                "report: {} counts {} and {} counts {}: runs of different programs, whose losses "
                "do not compare\n  Make a page for each.",
                first.path, first.unit, last.path, last.unit);
  }
  for (RunFacts& run : runs)
    if (names[run.name] > 1) run.name = run.path;
  return runs;
}

}  // namespace triax::parallel::report
