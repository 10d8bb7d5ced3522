#include "parallel/train/progress.h"

#include <fmt/format.h>

#include <cstdio>
#include <vector>

#include "parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

/// Parts of a line, least wanted last: those that do not fit are left out.
std::string fitted(const std::vector<std::string>& parts, int columns) {
  std::string line;
  for (auto& part : parts)
    if (!part.empty() && (line.empty() || line.size() + part.size() + 2 <= size_t(columns)))
      line += (line.empty() ? "" : "  ") + part;
  return line;
}

}  // namespace

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
      columns_(terminal_columns()),
      last_line_(Clock::now()) {}

void Progress::say(const std::string& text) const {
  if (!speaks_) return;
  std::fputs(folded(text, columns_).c_str(), stdout);
  std::fflush(stdout);
}

void Progress::step(const StepRecord& record) {
  const StepResult& r = record.result;
  double took = record.seconds;  // a validation is no part of the estimate of the time left
  if (!record.val_loss)
    mean_seconds_ = mean_seconds_ == 0 ? took : 0.95 * mean_seconds_ + 0.05 * took;
  bool wanted = r.step == 1 || r.step == steps_ || record.val_loss || r.skipped;
  auto now = Clock::now();
  if (!speaks_ || (!wanted && now - last_line_ < std::chrono::seconds(2))) return;
  last_line_ = now;
  double pace = mean_seconds_ > 0 ? mean_seconds_ : took;
  std::string skipped =
      r.skipped ? fmt::format("skipped: loss scale {:g} overflowed in {}", r.loss_scale, r.overflow)
                : "";
  std::string val = record.val_loss ? fmt::format("val loss {:.4f}", *record.val_loss) : "";
  std::string line =
      fitted({fmt::format("step {:>{}}/{}", r.step, std::to_string(steps_).size(), steps_),
              fmt::format("loss {:.4f}", r.loss), val,
              fmt::format("{:>6.0f} {}/s", r.weight / pace, unit_),
              fmt::format("{} left", duration(pace * double(steps_ - r.step))),
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

}  // namespace triax::parallel
