#include "triax/parallel/train/saver.h"

#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {
namespace {

/// Adds the cure to an error of writing: training need not start again for it.
template <class F> auto with_cure(const std::string& cure, F&& write) try {
  return write();
} catch (const Error& e) {
  if (e.code() != Exit::cannot_write) throw;
  throw e.saying(fmt::format("{}\n  {}", e.what(), cure));
}

}  // namespace

Saver::Saver(const RunDirectory::Contents& run, World& world, Step& step, OnDisk on_disk)
    : run_(run), world_(world), step_(step), on_disk_(std::move(on_disk)) {}

Position Saver::open() {
  const TrainOptions& o = run_.options;
  directory_.emplace(run_, world_.host());
  Position at = directory_->open(step_);
  begun_ = saved_ = at.step;
  if (o.out.empty()) directory_.reset();  // nothing is written
  else if (disk().is_directory(fmt::format("{}/step-{}", o.out, begun_))) set_farewell(begun_);
  if (o.keep_best) best_ = directory_->best();
  return at;
}

void Saver::begin(const Position& at, std::optional<double> val_loss) {
  if (!directory_) return;
  end(RunDirectory::Wait::yes);
  compare_replicas(at.step);
  with_cure(how_to_resume(), [&] { directory_->begin_save(at, step_, val_loss); });
  saved_ = at.step;
}

void Saver::end(RunDirectory::Wait wait) {
  auto step = directory_ ? with_cure(how_to_resume(), [&] { return directory_->end_save(wait); })
                         : std::nullopt;
  if (!step) return;
  set_farewell(*step);
  on_disk_(fmt::format("{}/step-{}", directory_->path(), *step));
}

bool Saver::add_validation(int64_t done, double val_loss) {
  end(RunDirectory::Wait::yes);
  return std::isfinite(val_loss) &&
         with_cure(how_to_resume(), [&] { return directory_->add_validation(done, val_loss); });
}

void Saver::compare_replicas(int64_t done) {
  if (run_.options.check_replicas == 0 || std::exchange(compared_, done) == done) return;
  end(RunDirectory::Wait::yes);  // a save of an earlier step, whose replicas were equal
  check_replicas(step_, world_.host(), done);
}

bool Saver::reaches_best(int64_t done, std::optional<double> val_loss) {
  bool reached = run_.options.keep_best && val_loss && std::isfinite(*val_loss) &&
                 (!best_ || *val_loss < best_->second);
  if (reached) best_ = {done, *val_loss};
  return reached;
}

std::string Saver::resuming() const {
  std::string file = shell_word(run_.options.out + "/config.toml");
  std::string config = run_.task.config.empty() ? "" : fmt::format("--config {} ", file);
  bool unsaved = saved_ == begun_ && directory_ && !directory_->allowed().empty();
  bool damaged = run_.options.resume == "last-good";  // the newest may be
  std::string command = run_.task.command.empty() ? "" : run_.task.command + " ";
  return fmt::format("{}{}--out {} --resume {}{}", command, config, shell_word(run_.options.out),
                     damaged ? "last-good" : "auto", unsaved ? " --resume-changed" : "");
}

/// Returns how to go on after an error, of a full disk, say.
std::string Saver::how_to_resume() const {
  if (!newest_) return "No checkpoint of this run is there yet.";
  return fmt::format("step-{} is whole. Go on with {}", *newest_, resuming());
}

/// Sets the last line of a run that is stopped at once.
void Saver::set_farewell(int64_t step) {
  newest_ = step;
  if (world_.rank() == 0)
    StopSignal::set_farewell(
        fmt::format("stopped at once; the newest checkpoint is {}/step-{}\n  Go on with {}\n",
                    run_.options.out, step, resuming()));
}

}  // namespace triax::parallel
