#include "triax/parallel/train/runs/report.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "triax/core/check.h"
#include "triax/core/io/json.h"
#include "triax/core/memory.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {

std::string exact(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

namespace {

std::string fields(double loss, const std::map<std::string, double>& scores) {
  std::string all = fmt::format(R"(,"val_loss":{})", loss);
  for (auto& [name, value] : scores) all += fmt::format(R"(,"val_{}":{})", name, exact(value));
  return all;
}

struct Kept {
  int64_t step;
  bool validated;
};
Kept read(const std::string& line, const std::string& where) try {
  nn::JsonReader record(line, where, "the record", 2);
  return {record.at("step").size(), record.has("val_loss")};
} catch (const Error& e) {
  fail(e.code(), "{}\n  Move the file away, or choose another --metrics.", e.what());
}

/// Joins parts of a line, least wanted last: those that do not fit are left out.
std::string fitted(const std::vector<std::string>& parts, int columns) {
  std::string line;
  for (auto& part : parts)
    if (!part.empty() && (line.empty() || line.size() + part.size() + 2 <= size_t(columns)))
      line += (line.empty() ? "" : "  ") + part;
  return line;
}

/// Returns `  dp     all_reduce    1.0 calls   217856 bytes` for each collective that was called.
std::string lines(const std::string& group, const Ledger& ledger, int64_t steps) {
  std::string text;
  for (int k = 0; k < Call::kinds; ++k) {
    auto kind = Call::Kind(k);
    const auto& line = ledger[kind];
    if (line.calls == 0 || kind == Call::split) continue;
    text += fmt::format("  {:<12} {:<14} {:>6.1f} calls {:>11.0f} bytes\n", group, name(kind),
                        double(line.calls) / double(steps), line.bytes / double(steps));
  }
  return text;
}

std::string memory_line() {
  const auto& counter = *memory::counter();
  std::string peak = fmt::format("  peak {:.2f} MB:", double(counter.peak()) / 1e6);
  std::string live = fmt::format("  live {:.2f} MB:", double(counter.live()) / 1e6);
  for (int k = 0; k < memory::kinds; ++k) {
    auto kind = memory::Kind(k);
    if (counter.peak(kind) == 0) continue;
    peak += fmt::format(" {} {:.2f}", memory::name(kind), double(counter.peak(kind)) / 1e6);
    live += fmt::format(" {} {:.2f}", memory::name(kind), double(counter.live(kind)) / 1e6);
  }
  return peak + "\n" + live + "\n";
}

}  // namespace

Metrics::Metrics(const Place& place, int64_t step) : place_(place), file_(nullptr, &std::fclose) {
  // A pipe that nobody reads would be waited for without end.
  int file =
      ::open(place.path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, 0666);
  check_input(file >= 0 || errno != ENXIO, Exit::cannot_write,
              "metrics: {} is a pipe that nobody reads; expected a file, or a pipe to a program",
              place.path);
  check_input(file >= 0, Exit::cannot_write, "metrics: cannot write {}: {}", place.path,
              std::strerror(errno));
  ::fcntl(file, F_SETFL, O_APPEND);
  file_.reset(::fdopen(file, "a"));
  if (!std::filesystem::is_regular_file(place.path)) return;
  check_input(take_lock(file), Exit::config,
              "metrics: {} is in use by another run\n  Wait for it, stop it, or choose another "
              "--metrics.",
              place.path);
  keep_until(step);
}

/// A resumed run repeats the steps after its checkpoint: their old lines go. The lines before stay
/// as they are, so that dying here loses none.
void Metrics::keep_until(int64_t step) {
  bool empty = std::filesystem::file_size(place_.path) == 0;
  check_input(empty || place_.owner != Place::Owner::unknown, Exit::config,
              "metrics: {} exists, and {}\n  It may be another run's: move it away, or choose "
              "another --metrics.",
              place_.path, step > 0 ? "the resumed run wrote elsewhere" : "this run starts afresh");
  std::ifstream old(place_.path);
  size_t kept = 0;
  int64_t number = 0, last = 0;
  missing_ = place_.owner == Place::Owner::recorded ? step : 0;
  for (std::string line; step > 0 && std::getline(old, line) && !old.eof();) {
    Kept record = read(line, fmt::format("metrics: {}:{}", place_.path, ++number));
    if (record.step > step) break;
    if (missing_ > 0 && record.step > std::exchange(last, record.step)) --missing_;
    kept += line.size() + 1;
    last_ = line;
    lacks_validation_ = record.step == step && !record.validated;
  }
  check_input(::ftruncate(::fileno(file_.get()), off_t(kept)) == 0, Exit::cannot_write,
              "metrics: cannot shorten {}: {}", place_.path, std::strerror(errno));
}

void Metrics::write(const StepRecord& record) {
  const StepResult& r = record.result;
  std::string line = fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"loss_scale":{},"skipped":{},{}:{},)"
      R"("seconds":{},{}:{},"memory_bytes":{})",
      r.step, exact(r.loss), exact(r.grad_norm), exact(r.lr), exact(r.loss_scale), r.skipped,
      nn::quoted(place_.unit), r.weight, exact(record.seconds),
      nn::quoted(place_.unit + "_per_second"), exact(r.weight / record.seconds),
      int64_t(r.memory_bytes));
  if (r.expert_load > 0) line += fmt::format(R"(,"expert_load":{})", exact(r.expert_load));
  if (!r.overflow.empty()) line += fmt::format(R"(,"overflow":{})", nn::quoted(r.overflow));
  if (!record.changed.empty()) line += fmt::format(R"(,"changed":{})", nn::quoted(record.changed));
  if (record.val_loss && std::isfinite(*record.val_loss))  // else a resumed run repeats it
    line += fields(*record.val_loss, record.scores);
  put(line + "}\n");
}

void Metrics::add_validation(double loss, const std::map<std::string, double>& scores) {
  constexpr off_t end = 2;  // the record's end: a brace and a line break
  struct stat status {};
  bool shorter = ::fstat(::fileno(file_.get()), &status) == 0 &&
                 ::ftruncate(::fileno(file_.get()), status.st_size - end) == 0;
  check_input(shorter, Exit::cannot_write, "metrics: cannot shorten {}: {}", place_.path,
              std::strerror(errno));
  put(fields(loss, scores) + "}\n");
}

void Metrics::put(const std::string& line) {
  bool written = std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  check_input(written, Exit::cannot_write, "metrics: cannot write {}: {}", place_.path,
              std::strerror(errno));
}

std::string duration(double seconds) {
  auto whole = int64_t(seconds + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

Progress::Progress(Voice voice, int64_t steps, std::string unit)
    : speaks_(voice == Voice::loud),
      steps_(steps),
      unit_(std::move(unit)),
      columns_(output_columns()),
      last_line_(Clock::now()) {}

void Progress::say(const std::string& text) const {
  if (!speaks_) return;
  std::fputs(folded(text).c_str(), stdout);
  std::fflush(stdout);
}

void Progress::say_command(const std::string& line) const {
  if (!speaks_) return;
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

std::string describe(double val_loss, const std::map<std::string, double>& scores) {
  std::string text = fmt::format("val loss {:.4f}", val_loss);
  for (auto& [name, value] : scores) text += fmt::format("  {} {:.4f}", name, value);
  return text;
}

void Progress::step(const StepRecord& record) {
  const StepResult& r = record.result;
  double took = record.seconds;  // a validation is no part of the pace
  if (!record.val_loss)
    mean_seconds_ = mean_seconds_ == 0 ? took : 0.95 * mean_seconds_ + 0.05 * took;
  bool wanted = r.step == 1 || r.step == steps_ || record.val_loss || r.skipped;
  auto now = Clock::now();
  if (!first_) first_ = {r.step, now};
  if (!speaks_ || (!wanted && now - last_line_ < std::chrono::seconds(2))) return;
  last_line_ = now;
  double pace = mean_seconds_ > 0 ? mean_seconds_ : took;
  // The time left includes validations and checkpoints, as far as there were any.
  std::chrono::duration<double> since = now - first_->second;
  auto steps = double(std::max<int64_t>(1, r.step - first_->first));
  double left = std::max(pace, since.count() / steps) * double(steps_ - r.step);
  std::string skipped =
      r.skipped ? fmt::format("skipped: loss scale {:g} overflowed in {}", r.loss_scale, r.overflow)
                : "";
  std::string val = record.val_loss ? describe(*record.val_loss, record.scores) : "";
  std::string line = fitted(
      {fmt::format("step {:>{}}/{}", r.step, std::to_string(steps_).size(), steps_),
       fmt::format("loss {:.4f}", r.loss), val,
       fmt::format("{:>6.0f} {}/s", r.weight / pace, unit_), fmt::format("{} left", duration(left)),
       fmt::format("norm {:.3f}", r.grad_norm), fmt::format("lr {:.1e}", r.lr)},
      columns_);
  say(line + "\n" + (skipped.empty() ? "" : "  " + skipped + "\n"));
}

void Progress::validating(int64_t done, int64_t all) {
  auto now = Clock::now();
  if (!speaks_ || now - last_line_ < std::chrono::seconds(5)) return;
  last_line_ = now;
  say(fmt::format("validating: {} of {} micro-batches, {} %\n", done, all, 100 * done / all));
}

std::string describe_ledger(const Mesh& mesh, const Pipeline& pipeline, int64_t steps) {
  std::string mine;
  steps = std::max<int64_t>(1, steps);
  std::vector<const Communicator*> groups;
  for (auto& [along, group] : mesh.groups()) groups.push_back(group.get());
  groups.insert(groups.end(), {&mesh.ends(), &mesh.world()});
  for (auto* group : groups)
    if (group->size() > 1 && group != &mesh.pp())
      mine += lines(group->group().name, group->ledger(), steps);
  for (auto* link : pipeline.links()) mine += lines(link->group().name, link->ledger(), steps);
  auto all = gather_text(mesh.world(), mine + memory_line());
  std::string text = "a step of one rank of each stage (bytes: those a ring would send)\n";
  for (int stage = 0; stage < mesh.shape().pp && mesh.world().rank() == 0; ++stage) {
    int rank = mesh.shape().first_rank("pp", stage);
    text += fmt::format("stage {}, rank {}\n{}", stage, rank, all[size_t(rank)]);
  }
  return text;
}

}  // namespace triax::parallel
