#include "triax/parallel/train/trainer.h"

#include <cmath>
#include <filesystem>

#include "triax/core/check.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::parallel {

Trainer::Trainer(Task task, const TrainOptions& o, World& world, StepObserver observer)
    : Trainer(resolve_run(std::move(task), o, world), world, std::move(observer)) {}

Trainer::Trainer(ResolvedRun run, World& world, StepObserver observer)
    : task_(std::move(run.task)),
      world_(world),
      options_(std::move(run.options)),
      settings_(joined({train_settings(options_), task_.settings})),
      mesh_(world.comm(), options_.step.mesh),
      feed_(task_.samples, uint64_t(options_.step.seed),
            {options_.step.micro_batch, options_.step.global_batch, mesh_.dp().rank(),
             mesh_.dp().size()}),
      loader_(feed_, options_.workers),
      step_(mesh_, task_.build, options_.step, std::move(run.facts),
            {observer.layer, observer.gradients, observer.choices,
             [this] { call("gradients", &Callbacks::gradients); }}),
      progress_(world.rank() == 0 ? Progress::Voice::loud : Progress::Voice::silent, options_.steps,
                task_.unit),
      saver_({task_, options_, settings_}, world, step_,
             [this](auto& path) { call("checkpoint", &Callbacks::checkpoint, path); }),
      validation_(task_, world, step_, feed_.place()) {
  check_input(
      !options_.keep_best || (task_.held_out && !options_.out.empty()), Exit::config,
      "keep-best without {}; expected validations, whose losses say which checkpoint is the "
      "best\n  Leave --keep-best out, or hold samples out and name a run directory.",
      task_.held_out ? "a run directory" : "held-out samples");
  if (!options_.out.empty() || !options_.resume.empty()) {
    auto [step, samples] = saver_.open();
    done_ = step;
    feed_.set_consumed(step, samples);
  } else if (!options_.init.empty()) {
    start_from(options_, task_, step_, world_.host());
  }
  if (!options_.profile.empty()) profile_steps(*this);
  if (options_.tensorboard) write_tensorboard(*this, task_.unit);
  certify(*this);
  open_metrics();
  RunDirectory* directory = saver_.directory();
  if (directory && (done_ == 0 || done_ < options_.steps))  // else there is nothing to do
    directory->write_configuration(options_.metrics, step_.replica().data().parameter_count(),
                                   done_ + 1);
}

/// Opens the file of metrics in the run directory, unless the options name another.
void Trainer::open_metrics() {
  const RunDirectory* directory = saver_.directory();
  std::string own =
      directory ? (std::filesystem::path(options_.out) / "metrics.jsonl").string() : "";
  if (options_.metrics.empty()) options_.metrics = own;
  if (options_.metrics.empty()) return;
  using Owner = Metrics::Place::Owner;
  Owner owner = options_.metrics == own ? Owner::this_run : Owner::unknown;
  if (directory && directory->wrote(options_.metrics)) owner = Owner::recorded;
  on_first(world_.host(), [&] {
    metrics_.emplace(Metrics::Place{options_.metrics, task_.unit, owner}, done_);
  });
}

void Trainer::on(Callbacks c, On where) {
  step_by_step_ |= where == On::all && c.step;
  if (where == On::all || first()) callbacks_.add(std::move(c), where);
}

void Trainer::take() {
  int64_t number = ++done_;
  val_loss_ = {};
  step_.take({.number = number,
              .batches = [this, number](int64_t micro) { return loader_.at(number, micro); },
              .weight = feed_.weight(number),
              .lr = options_.lr.at(step_.updates() + 1)});
}

StepResult Trainer::step() {
  callbacks_.check("step()", {});
  take();
  auto result = step_.results(Step::Await::all).back();
  step_.replica().data().await_weights();
  return result;
}

/// Returns the results of steps. Ranks diverge together: a save under way ends before the error.
std::vector<StepRecord> Trainer::results(Step::Await await) {
  std::vector<StepRecord> records;
  try {
    for (auto& r : step_.results(await)) records.push_back({r});
  } catch (const Diverged&) {
    saver_.end(RunDirectory::Wait::yes);
    throw;
  }
  stopping_ = step_.asked_to_stop();
  return records;
}

/// Returns available results; that of the step just taken too where something depends on it.
std::vector<StepRecord> Trainer::latest() {
  auto records = results(step_by_step_ ? Step::Await::all : Step::Await::oldest);
  bool awaited =
      due(options_.val_every) || due(options_.save_every) || due(options_.check_replicas) || ends();
  if (!awaited || (!records.empty() && records.back().result.step == done_)) return records;
  for (auto& r : records) report(r);
  return results(Step::Await::all);
}

std::optional<double> Trainer::held_out_loss() {
  auto loss = validation_.run(done_, progress_);
  if (!loss) return {};
  val_loss_ = loss;
  call("validation", &Callbacks::validation, *loss);
  return loss;
}

std::optional<double> Trainer::validate() {
  callbacks_.check("validate()", {"start", "step", "end"});
  check(task_.held_out != nullptr, "trainer: validate without held-out samples");
  auto loss = held_out_loss();
  Validation::check_finite(loss, done_);
  return loss;
}

void Trainer::validate(StepRecord& record) {
  record.val_loss = held_out_loss();
  record.scores = scores();
  stopping_ = !record.val_loss;
}

void Trainer::save() {
  callbacks_.check("save()", {"start", "step", "validation", "end"});
  check(saver_.directory(), "trainer: save without a run directory; expected options.out");
  saver_.begin(position(), val_loss_);
  saver_.end(RunDirectory::Wait::yes);
}

void Trainer::save_if_due() {
  bool failed = val_loss_ && !std::isfinite(*val_loss_);  // the training did not: it is kept
  if (saver_.reaches_best(done_, val_loss_) || due(options_.save_every) || ends() || failed)
    saver_.begin(position(), val_loss_);
  saver_.end(failed ? RunDirectory::Wait::yes : RunDirectory::Wait::no);
  Validation::check_finite(val_loss_, done_);
}

void Trainer::report(StepRecord& record) {
  auto now = std::chrono::steady_clock::now();
  record.seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  if (const RunDirectory* d = saver_.directory(); d && record.result.step == saver_.begun() + 1)
    record.changed = join(d->allowed(), "; ");
  if (metrics_) metrics_->write(record);
  progress_.step(record);
  if (!warned_ && !record.result.skipped) progress_.say(warning_of(record.result, options_.step));
  warned_ |= !record.result.skipped;
  call("step", &Callbacks::step, record);
}

Exit Trainer::run() {
  callbacks_.check("run()", {});
  try {
    Exit code = train();
    if (code == Exit::stopped) StopSignal::set_stopped();
    return code;
  } catch (const std::exception& e) {
    try {
      call("error", &Callbacks::error, e);
    } catch (const std::exception& another) {  // the first says more
      progress_.say(fmt::format("in a callback `error`: {}\n", another.what()));
    }
    throw;
  }
}

/// Runs a validation that is due but was not run: the last run was stopped in it, or the caller
/// took the steps. If the last step has metrics, adds the loss to them.
void Trainer::catch_up() {
  if (!task_.held_out || done_ == 0 || val_loss_ || !(due(options_.val_every) || ends())) return;
  bool lacks = text_of_first(world_.host(), [&] {
                 return metrics_ && metrics_->lacks_validation() ? "yes" : "";
               }) == "yes";
  if (done_ == saver_.begun() && !lacks) return;
  auto loss = held_out_loss();
  bool best = saver_.reaches_best(done_, val_loss_);
  bool noted = saver_.directory() && loss && saver_.add_validation(done_, *loss);
  if (saver_.directory() && !noted && (best || saver_.saved() != done_)) save();
  Validation::check_finite(loss, done_);
  if (loss && metrics_ && done_ == saver_.begun()) metrics_->add_validation(*loss, scores());
  if (loss) progress_.say(fmt::format("step {}  {}\n", done_, describe(*loss, scores())));
  stopping_ = !loss;
}

/// The training loop. It has no branch on any parallel setting.
Exit Trainer::train() {
  stopping_ = false;
  progress_.say(describe_start());
  if (task_.held_out) validation_.check_blanks(done_);  // before a profile of the first step begins
  call("start", &Callbacks::start);
  catch_up();
  last_step_ = std::chrono::steady_clock::now();
  while (!ends()) {
    take();
    auto records = latest();
    if (task_.held_out && !stopping_ && (due(options_.val_every) || ends()))
      validate(records.back());
    for (auto& r : records) report(r);
    if (due(options_.check_replicas)) saver_.compare_replicas(done_);
    save_if_due();
  }
  if (saver_.saved() != done_) saver_.begin(position(), val_loss_);  // steps that the caller took
  saver_.end(RunDirectory::Wait::yes);
  if (options_.ledger)
    progress_.say(describe_ledger(mesh_, step_.replica().pipeline(), done_ - saver_.begun()));
  say_end();
  step_.replica().data().await_weights();
  call("end", &Callbacks::end);
  return stopping_ ? Exit::stopped : Exit::ok;
}

}  // namespace triax::parallel
