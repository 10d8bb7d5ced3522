#include <utility>

#include "core/check.h"
#include "parallel/comm/launch/stop_signal.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/check_replicas.h"
#include "parallel/train/trainer.h"

// When a trainer saves, and what it does once a checkpoint is on the disk.
namespace triax::parallel {

namespace {

/// What cannot be written is no reason to train again from the start.
template <class F> auto with_cure(const std::string& cure, F&& write) {
  try {
    return write();
  } catch (const Error& e) {
    if (e.code() != Exit::cannot_write) throw;
    throw e.saying(fmt::format("{}\n  {}", e.what(), cure));
  }
}

}  // namespace

/// After an error, for a run whose disk is full, say.
std::string Trainer::way_on() const {
  if (!newest_) return "No checkpoint of this run is there yet.";
  return fmt::format("step-{} is whole. Go on with {}", *newest_, resuming());
}

void Trainer::save() {
  check_call("save()", {"start", "step", "validation", "end"});
  check(directory_.has_value(), "trainer: save without a run directory; expected options.out");
  begin_save();
  end_save(RunDirectory::Wait::yes);
}

/// The same, where there is a directory; end_save() says when it is there.
void Trainer::begin_save() {
  if (!directory_) return;
  end_save(RunDirectory::Wait::yes);
  compare_replicas();
  with_cure(way_on(), [&] {
    directory_->begin_save({done_, feed_.consumed(done_)}, step_, val_loss_);
  });
  saved_ = done_;
}

/// Once after a step, if it is asked for at all: no checkpoint hides what differs.
void Trainer::compare_replicas() {
  if (options_.check_replicas == 0 || std::exchange(compared_, done_) == done_) return;
  end_save(RunDirectory::Wait::yes);  // of an earlier step, whose replicas were equal
  check_replicas(step_, world_.host(), done_);
}

/// The command by which the run continues, of a program; else its flags.
std::string Trainer::resuming() const {
  std::string file = shell_word(options_.out + "/config.toml");
  std::string config = task_.config.empty() ? "" : fmt::format("--config {} ", file);
  bool unsaved = saved_ == begun_ && directory_ && !directory_->allowed().empty();
  bool damaged = options_.resume == "last-good";  // the newest may be
  std::string command = task_.command.empty() ? "" : task_.command + " ";
  return fmt::format("{}{}--out {} --resume {}{}", command, config, shell_word(options_.out),
                     damaged ? "last-good" : "auto", unsaved ? " --resume-changed" : "");
}

void Trainer::end_save(RunDirectory::Wait wait) {
  auto step =
      directory_ ? with_cure(way_on(), [&] { return directory_->end_save(wait); }) : std::nullopt;
  if (!step) return;
  set_farewell(*step);
  call("checkpoint", &Callbacks::checkpoint, fmt::format("{}/step-{}", directory_->path(), *step));
}

/// For a user who does not wait for the end.
void Trainer::set_farewell(int64_t step) {
  newest_ = step;
  if (first())
    StopSignal::set_farewell(
        fmt::format("stopped at once; the newest checkpoint is {}/step-{}\n  Go on with {}\n",
                    options_.out, step, resuming()));
}

/// At the end: also steps that the caller took.
void Trainer::save_rest() {
  if (saved_ != done_) begin_save();
  end_save(RunDirectory::Wait::yes);
}

/// Ranks diverge together: what they have begun to save comes before the error.
std::vector<StepRecord> Trainer::results(Step::Upto upto) {
  std::vector<StepRecord> records;
  try {
    for (auto& r : step_.results(upto)) records.push_back({r});
  } catch (const Diverged&) {
    end_save(RunDirectory::Wait::yes);
    throw;
  }
  return records;
}

}  // namespace triax::parallel
