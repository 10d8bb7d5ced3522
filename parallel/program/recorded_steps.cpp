#include "parallel/program/recorded_steps.h"

#include <filesystem>
#include <fstream>
#include <limits>

#include "core/check.h"
#include "core/files.h"
#include "nn/json.h"

namespace triax::parallel {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

double value_of(const nn::JsonReader& number) {
  return number.is_null() ? std::numeric_limits<double>::quiet_NaN() : number.real();
}

}  // namespace

std::string metrics_of(const std::string& run) {
  std::string said = run + "/metrics_path", own = run + "/metrics.jsonl";
  said = is_file(said) ? disk().read(said, 1 << 20) : "";
  said = said.substr(0, said.find('\n'));
  bool copied = fs::path(said).filename() == "metrics.jsonl" && is_file(own) &&
                is_file(fs::path(said).parent_path() / "metrics_path");  // said is another run's
  std::string file = is_file(said) && !copied ? said : own;
  return is_file(file) ? file : "";
}

std::map<int64_t, RecordedStep> recorded_steps(const std::string& metrics) {
  std::map<int64_t, RecordedStep> steps;
  std::ifstream in(metrics);
  std::string line;
  for (int64_t number = 1; std::getline(in, line) && !in.eof(); ++number) {  // not one that is cut
    nn::JsonReader record(line, fmt::format("replay: {}:{}", metrics, number), "the record", 1);
    auto step = int64_t(record.at("step").number(uint64_t{1} << 52));
    auto loss = record.at("loss");
    if (record.has("grad_norm")) steps[step] = {value_of(loss), value_of(record.at("grad_norm"))};
  }
  return steps;
}

}  // namespace triax::parallel
