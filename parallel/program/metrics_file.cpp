#include "triax/parallel/program/metrics_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"

namespace triax::parallel {
namespace {

namespace fs = std::filesystem;

/// Returns a run's file of metrics. A copied directory still names that of the original.
std::string path_of(const fs::path& run) {
  std::string said, own = run / "metrics.jsonl";
  std::ifstream in(run / "metrics_path");
  std::getline(in, said);
  fs::path folder = fs::path(said).parent_path();
  bool of_another = said == folder / "metrics.jsonl" && disk().is_file(folder / "metrics_path");
  if (disk().is_file(said) && !(of_another && disk().is_file(own))) return said;
  return disk().is_file(own) ? own : "";
}

using Record = std::pair<int64_t, MetricsFile::Step>;

/// Reads a record; nothing for a line that has no norm.
std::optional<Record> read(const std::string& line, const std::string& where) try {
  nn::JsonReader record(line, where, "the record", 1);
  auto value = [&](const char* key) {
    auto at = record.at(key);
    return at.is_null() ? std::numeric_limits<double>::quiet_NaN() : at.real();
  };
  if (!record.has("grad_norm")) return {};
  return Record{record.at("step").size(), {value("loss"), value("grad_norm"), value("lr")}};
} catch (const Error& e) {
  throw e.saying(fmt::format("{}\n  The file is damaged: delete that line.", e.what()));
}

}  // namespace

MetricsFile read_metrics(const std::string& run) {
  MetricsFile file{path_of(run), {}};
  if (file.path.empty()) return file;
  std::ifstream in(file.path);
  check_input(in.is_open(), Exit::io, "replay: cannot read {}: {}", file.path,
              std::strerror(errno));
  int64_t number = 0;
  for (std::string line; std::getline(in, line) && !in.eof();)
    if (auto record = read(line, fmt::format("replay: {}:{}", file.path, ++number)))
      file.steps.insert(*record);
  return file;
}

}  // namespace triax::parallel
