#include "examples/minigpt/report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/memory.h"
#include "parallel/comm/launch/stop_signal.h"

namespace triax::minigpt {
namespace {

double seconds(std::chrono::steady_clock::duration d) {
  return std::chrono::duration<double>(d).count();
}

/// Reads back exactly; null where it is no number.
std::string exact(double x) { return std::isfinite(x) ? fmt::format("{}", x) : "null"; }

std::string duration(double s) {
  auto whole = int64_t(s + 0.5);
  if (whole < 60) return fmt::format("{}s", whole);
  if (whole < 3600) return fmt::format("{}m{:02}s", whole / 60, whole % 60);
  return fmt::format("{}h{:02}m", whole / 3600, whole / 60 % 60);
}

/// {largest peak of tensor memory, was anybody asked to stop} of all ranks.
Tensor highest(parallel::Communicator& world) {
  auto peak = double(memory::counter()->peak());
  Tensor tops = from_host(std::vector<double>{peak, double(parallel::StopSignal::seen())}, {2},
                          world.device());
  world.all_reduce(tops, parallel::ReduceOp::max).wait();
  return tops;
}

}  // namespace

TotalsToCome::TotalsToCome(parallel::Communicator& world, const Tensor& sums)
    : sums_(sums), tops_(highest(world)) {}

Totals TotalsToCome::totals() const {
  auto tops = tops_.values().to_host<double>();
  return {.loss = sums()[0], .memory_bytes = tops[0], .stop = tops[1] != 0};
}

std::string describe(const parallel::DataParallel::NonFinite& found) {
  if (found.parameter.empty()) return "";
  std::string text = fmt::format("{} of rank {}", found.parameter, found.rank);
  return found.micro < 0 ? text : text + fmt::format(", micro-batch {}", found.micro);
}

void check_finite(const StepRecord& r, const TrainConfig& c, const optim::LossScaler& scaler) {
  if (std::isfinite(r.loss) && std::isfinite(r.grad_norm)) return;
  bool scaled = c.precision == "fp16";
  if (scaled && !scaler.exhausted()) return;
  check_input(!scaled, Exit::non_finite,
              "train: {} steps in a row overflowed, the last at step {} with loss scale {}, first "
              "in {}; no weight was changed. Expected a finite gradient: try {}a lower --lr, or "
              "--precision bf16",
              scaler.skips(), r.step, r.loss_scale, r.overflow,
              c.loss_scale > 0 ? "--loss-scale 0, " : "");
  fail(Exit::non_finite,
       "train: loss {} and gradient norm {} at step {}, first in {}; no weight was changed. "
       "Expected finite ones: try a lower --lr, more --warmup, or --clip",
       r.loss, r.grad_norm, r.step, r.overflow);
}

void Report::describe(const std::string& mesh, const TextData& text,
                      const Tokenizer& tokenizer) const {
  if (!speaks_) return;
  fmt::print("{}{}: {} training tokens, {} held out, {} characters, unigram entropy {:.4f} nats\n",
             mesh, config_.data, text.train_tokens(), text.val_tokens(), tokenizer.size(),
             text.unigram_entropy());
}

/// A resumed run repeats the steps after its checkpoint: their old lines go. The lines before stay
/// as they are, so that dying here loses none.
void Report::keep_until(int64_t step) {
  const std::string& path = config_.metrics;
  file_.reset(std::fopen(path.c_str(), "a"));
  check_input(file_ != nullptr, Exit::cannot_write, "metrics: cannot write {}: {}", path,
              std::strerror(errno));
  if (!std::filesystem::is_regular_file(path)) return;
  std::ifstream old(path);
  size_t kept = 0;
  for (std::string line; step > 0 && std::getline(old, line) && !old.eof();) {
    auto record = nlohmann::json::parse(line, nullptr, false);
    if (!record.is_object() || record.value("step", step + 1) > step) break;
    kept += line.size() + 1;
  }
  check_input(::ftruncate(::fileno(file_.get()), off_t(kept)) == 0, Exit::cannot_write,
              "metrics: cannot shorten {}: {}", path, std::strerror(errno));
}

void Report::start(int64_t parameters, int64_t step) {
  last_step_ = last_line_ = Clock::now();
  if (!speaks_) return;
  keep_until(step);
  auto& m = config_.model;
  fmt::print("{} layers, {} heads, width {}, context {}: {} parameters; {} tokens a step\n",
             m.layers, m.heads, m.width, m.context, parameters, config_.global_batch * m.context);
  fmt::print("run directory {}{}\n", config_.out,
             step ? fmt::format(", resumed after step {}", step) : "");
  std::fflush(stdout);
}

void Report::step(const StepRecord& r) {
  auto now = Clock::now();
  double took = seconds(now - last_step_);
  last_step_ = now;
  if (!speaks_) return;
  std::string line = fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":{},"lr":{},"loss_scale":{},"skipped":{},"tokens":{},)"
      R"("seconds":{},"tokens_per_second":{},"memory_bytes":{})",
      r.step, exact(r.loss), exact(r.grad_norm), exact(r.lr), exact(r.loss_scale), r.skipped,
      r.tokens, exact(took), exact(double(r.tokens) / took), int64_t(r.memory_bytes));
  if (!r.overflow.empty()) line += fmt::format(R"(,"overflow":"{}")", r.overflow);
  if (r.val_loss) line += fmt::format(R"(,"val_loss":{})", exact(*r.val_loss));
  line += "}\n";
  bool written = std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  check_input(written, Exit::cannot_write, "metrics: cannot write {}: {}", config_.metrics,
              std::strerror(errno));
  // Validation counts into its step's time, but not into the estimate of the time left.
  if (!r.val_loss) mean_seconds_ = mean_seconds_ == 0 ? took : 0.95 * mean_seconds_ + 0.05 * took;
  print(r, took);
}

/// About a line a second, and the ones nobody wants to miss.
void Report::print(const StepRecord& r, double took) {
  bool wanted = r.step == 1 || r.step == config_.steps || r.val_loss || r.skipped;
  if (!wanted && seconds(last_step_ - last_line_) < 2) return;
  last_line_ = last_step_;
  double pace = mean_seconds_ > 0 ? mean_seconds_ : took;
  std::string val = r.val_loss ? fmt::format("  val loss {:.4f}", *r.val_loss) : "";
  if (r.skipped)
    val += fmt::format("  skipped: loss scale {:g} overflowed in {}", r.loss_scale, r.overflow);
  fmt::print(
      "step {:>{}}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:>6.0f} tokens/s  {} left{}\n",
      r.step, std::to_string(config_.steps).size(), config_.steps, r.loss, r.grad_norm, r.lr,
      double(r.tokens) / pace, duration(pace * double(config_.steps - r.step)), val);
  std::fflush(stdout);
}

void Report::say(const std::string& text) const {
  if (speaks_) fmt::print("{}", text);
}

void Report::finish(int64_t step, bool stopped) {
  if (!speaks_) return;
  if (stopped)
    fmt::print(
        "stopped by a signal after step {}; checkpoint {}/step-{} is saved, go on with --out {} "
        "--resume auto\n",
        step, config_.out, step, config_.out);
  else fmt::print("finished after step {}; checkpoint {}/step-{}\n", step, config_.out, step);
  std::fflush(stdout);
}

}  // namespace triax::minigpt
