#include "parallel/train/metrics.h"

#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace triax::parallel {
namespace {

/// Reads back exactly; null where it is no number.
std::string exact(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

}  // namespace

Metrics::Metrics(const Place& place, int64_t step)
    : place_(place), file_(std::fopen(place.path.c_str(), "a"), &std::fclose) {
  check_input(file_ != nullptr, Exit::cannot_write, "metrics: cannot write {}: {}", place.path,
              std::strerror(errno));
  if (std::filesystem::is_regular_file(place.path)) keep_until(step);
}

/// A resumed run repeats the steps after its checkpoint: their old lines go. The lines before stay
/// as they are, so that dying here loses none.
void Metrics::keep_until(int64_t step) const {
  bool empty = std::filesystem::file_size(place_.path) == 0;
  check_input(empty || step > 0 || place_.owner == Place::Owner::this_run, Exit::config,
              "metrics: {} exists, and this run starts afresh\n  It may be another run's: move it "
              "away, or choose another --metrics.",
              place_.path);
  std::ifstream old(place_.path);
  size_t kept = 0;
  int64_t number = 0;
  for (std::string line; step > 0 && std::getline(old, line) && !old.eof();) {
    auto record = nlohmann::json::parse(line, nullptr, false);
    bool whole =
        record.is_object() && record.contains("step") && record["step"].is_number_integer();
    check_input(whole, Exit::data,
                "metrics: {}:{} is no record of a step; expected a JSON object with an integer "
                "`step`\n  Move the file away, or choose another --metrics.",
                place_.path, number + 1);
    if (record["step"].get<int64_t>() > step) break;
    kept += line.size() + 1;
    ++number;
  }
  check_input(::ftruncate(::fileno(file_.get()), off_t(kept)) == 0, Exit::cannot_write,
              "metrics: cannot shorten {}: {}", place_.path, std::strerror(errno));
}

void Metrics::write(const StepRecord& record) {
  const StepResult& r = record.result;
  std::string line = fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"loss_scale":{},"skipped":{},"{}":{},)"
      R"("seconds":{},"{}_per_second":{},"memory_bytes":{})",
      r.step, exact(r.loss), exact(r.grad_norm), exact(r.lr), exact(r.loss_scale), r.skipped,
      place_.unit, r.weight, exact(record.seconds), place_.unit, exact(r.weight / record.seconds),
      int64_t(r.memory_bytes));
  if (!r.overflow.empty()) line += fmt::format(R"(,"overflow":"{}")", r.overflow);
  if (record.val_loss) line += fmt::format(R"(,"val_loss":{})", exact(*record.val_loss));
  line += "}\n";
  bool written = std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  check_input(written, Exit::cannot_write, "metrics: cannot write {}: {}", place_.path,
              std::strerror(errno));
}

}  // namespace triax::parallel
