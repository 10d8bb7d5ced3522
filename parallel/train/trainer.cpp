#include "parallel/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>

#include "core/check.h"
#include "parallel/comm/launch/stop_signal.h"
#include "parallel/comm/together.h"
#include "parallel/train/initial_weights.h"
#include "parallel/train/options.h"
#include "parallel/train/report.h"
#include "parallel/train/unsigned_nan.h"

namespace triax::parallel {
Trainer::Trainer(Task task, const TrainOptions& o, World& world, StepObserver observer)
    : Trainer(settle(std::move(task), o, world), world, std::move(observer)) {}

Trainer::Trainer(Settled run, World& world, StepObserver observer)
    : task_(std::move(run.task)),
      world_(world),
      options_(std::move(run.options)),
      settings_(joined({train_settings(options_), task_.settings})),
      mesh_(world.comm(), options_.step.mesh),
      feed_(task_.samples, uint64_t(options_.step.seed), place()),
      loader_(feed_, options_.workers),
      step_(mesh_, task_.build, options_.step, std::move(run.facts), std::move(observer)),
      progress_(world.rank() == 0 ? Progress::Voice::loud : Progress::Voice::silent, options_.steps,
                task_.unit) {
  check_input(
      !options_.keep_best || (task_.held_out && !options_.out.empty()), Exit::config,
      "keep-best without {}; expected validations, whose losses say which checkpoint is the "
      "best\n  Leave --keep-best out, or hold samples out and name a run directory.",
      task_.held_out ? "a run directory" : "held-out samples");
  if (!options_.out.empty() || !options_.resume.empty()) {
    directory_.emplace(RunDirectory::Contents{task_, options_, settings_}, world_.host());
    auto [step, samples] = directory_->open(step_);
    begun_ = saved_ = done_ = step;
    feed_.set_consumed(step, samples);
    if (options_.out.empty()) directory_.reset();  // nothing is written
    else if (disk().is_directory(fmt::format("{}/step-{}", options_.out, begun_)))
      set_farewell(begun_);
  } else if (!options_.init.empty()) {
    start_from({options_.init, options_.init_new}, task_, step_, world_.host());
  }
  if (options_.keep_best) best_ = directory_->best();
  if (!options_.profile.empty()) profile_steps(*this);
  if (options_.tensorboard) write_tensorboard(*this, task_.unit);
  open_metrics();
  if (directory_ && (begun_ == 0 || begun_ < options_.steps))  // else there is nothing to do
    directory_->write_configuration(options_.metrics, step_.replica().data().parameter_count(),
                                    begun_ + 1);
}

/// A file in the run directory, unless the options name another.
void Trainer::open_metrics() {
  std::string own =
      directory_ ? (std::filesystem::path(options_.out) / "metrics.jsonl").string() : "";
  if (options_.metrics.empty()) options_.metrics = own;
  if (options_.metrics.empty()) return;
  using Owner = Metrics::Place::Owner;
  Owner owner = options_.metrics == own ? Owner::this_run : Owner::unknown;
  if (directory_ && directory_->wrote(options_.metrics)) owner = Owner::recorded;
  on_first(world_.host(), [&] {
    metrics_.emplace(Metrics::Place{options_.metrics, task_.unit, owner}, done_);
  });
}

void Trainer::on(Callbacks c, On where) {
  step_by_step_ |= where == On::all && c.step;
  if (where == On::all || first()) callbacks_.push_back({std::move(c), where});
}

/// What all ranks have to call would hang on the first alone.
void Trainer::check_call(const char* what, const std::vector<std::string>& allowed) const {
  if (!inside_) return;
  bool all = inside_->where == On::all, fits = std::ranges::count(allowed, inside_->name) > 0;
  check_input(fits && all, Exit::config, "trainer: {} in a callback `{}`{}; expected it {}", what,
              inside_->name, all ? "" : " of the first rank alone",
              allowed.empty() ? "outside of callbacks"
                              : fmt::format("in {}, registered for all ranks: "
                                            "trainer.on({{..}}, On::all)",
                                            join(allowed, ", ")));
}

Feed::Place Trainer::place() const {
  return {options_.step.micro_batch, options_.step.global_batch, mesh_.dp().rank(),
          mesh_.dp().size()};
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
  check_call("step()", {});
  take();
  return step_.results(Step::Upto::all).back();
}

std::optional<double> Trainer::held_out_loss() {
  ProfileRange range("validation");
  std::optional<double> loss;
  step_.with_average([&] { check_held_out(), loss = pass_over_held_out(); });
  if (!loss) return {};
  val_loss_ = loss;
  call("validation", &Callbacks::validation, *loss);
  return loss;
}

/// In slices, between which ranks ask each other whether to stop: a whole pass may take minutes.
std::optional<double> Trainer::pass_over_held_out() {
  Feed all(task_.held_out, 0, place());
  int64_t micros = all.micros_in_order(), slice = std::max(8, 2 * mesh_.pp().size());
  double weight = all.weight_in_order();
  std::vector<double> losses, scores;
  auto add = [](std::vector<double>& sums, const std::vector<double>& more) {
    sums.resize(more.size());
    std::ranges::transform(sums, more, sums.begin(), std::plus());
  };
  for (int64_t done = 0; done < micros; done += slice) {
    Tensor stop = from_host(std::vector<double>{double(StopSignal::seen())}, {1}, cpu);
    world_.host().all_reduce(stop, ReduceOp::max).wait();
    if (stop.item() != 0) return {};
    int64_t now = std::min(slice, micros - done);
    Batches batches = [&](int64_t micro) { return all.in_order(done + micro); };
    add(losses, step_.evaluate(batches, now));
    if (!task_.scores.empty()) add(scores, step_.score(batches, now, task_.scores));
    progress_.validating(done + now, micros);
  }
  scores = step_.sums_of(scores);
  size_t at = 0;
  for (auto& [name, score] : task_.scores)
    scores_[name] = (scores.empty() ? 0 : scores[at++]) / weight;
  return unsigned_nan((losses.empty() ? 0 : step_.sums_of(losses)[0]) / weight);
}

void Trainer::report(StepRecord& record) {
  auto now = std::chrono::steady_clock::now();
  record.seconds = std::chrono::duration<double>(now - last_step_).count();
  last_step_ = now;
  if (directory_ && record.result.step == begun_ + 1)
    record.changed = join(directory_->allowed(), "; ");
  if (metrics_) metrics_->write(record);
  progress_.step(record);
  if (!warned_ && !record.result.skipped) progress_.say(warning_of(record.result));
  warned_ |= !record.result.skipped;
  call("step", &Callbacks::step, record);
}

Exit Trainer::run() {
  check_call("run()", {});
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

/// The training loop. It has no branch on any parallel setting.
Exit Trainer::train() {
  const int64_t steps = options_.steps;
  progress_.say(describe_start());
  if (task_.held_out) check_held_out();  // before a profile of the first step begins
  call("start", &Callbacks::start);
  auto validates = [&] { return task_.held_out && (due(options_.val_every) || done_ >= steps); };
  bool missing = done_ > 0 && validates() && !val_loss_ && (done_ > begun_ || lacks_validation());
  bool stopping = missing && !make_up_validation();
  last_step_ = std::chrono::steady_clock::now();
  while (done_ < steps && !stopping) {
    take();
    auto records = results(step_by_step_ ? Step::Upto::all : Step::Upto::lag);
    stopping = step_.asked_to_stop();
    bool last = done_ == steps || stopping;
    bool compares = due(options_.check_replicas);
    bool known = due(options_.val_every) || due(options_.save_every) || compares || last;
    if (known && (records.empty() || records.back().result.step < done_)) {
      for (auto& r : records) report(r);
      records = results(Step::Upto::all);
      stopping = step_.asked_to_stop();
      last = last || stopping;
    }
    std::optional<double> loss;
    if (task_.held_out && !stopping && (due(options_.val_every) || last)) {
      records.back().val_loss = loss = held_out_loss();
      records.back().scores = scores_;
      stopping = !loss;
    }
    for (auto& r : records) report(r);
    if (compares) compare_replicas();
    bool failed = loss && !std::isfinite(*loss);  // the training did not: its steps are kept
    if (reaches_best() || due(options_.save_every) || last || stopping || failed) begin_save();
    end_save(failed ? RunDirectory::Wait::yes : RunDirectory::Wait::no);
    check_finite(loss, done_);
  }
  save_rest();
  if (options_.ledger)
    progress_.say(describe_ledger(mesh_, step_.replica().pipeline(), done_ - begun_));
  say_end(stopping);
  call("end", &Callbacks::end);
  return stopping ? Exit::stopped : Exit::ok;
}

}  // namespace triax::parallel
