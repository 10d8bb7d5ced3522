#include <cmath>

#include "core/check.h"
#include "parallel/train/trainer.h"

// What guards the validations of a trainer.
namespace triax::parallel {

void Trainer::check_finite(std::optional<double> val_loss, int64_t step) {
  check_input(
      !val_loss || std::isfinite(*val_loss), Exit::non_finite,
      "validation: loss {} after step {}, whose training loss is finite; expected a finite "
      "one\n  The last update may have been too large: resume from an earlier checkpoint with a "
      "smaller --lr.\n  Else look for inf and NaN in the held-out samples. Other samples are "
      "another run, with an --out of\n  its own; this one trains on with --val-every 0.",
      val_loss.value_or(0), step);
}

std::optional<double> Trainer::validate() {
  check_call("validate()", {"start", "step", "end"});
  check(task_.held_out != nullptr, "trainer: validate without held-out samples");
  auto loss = held_out_loss();
  check_finite(loss, done_);
  return loss;
}

/// What would only fail at the first validation, hours later. Blanks pad the last batch: their loss
/// must be 0, or the mean would depend on the mesh. Initial weights may hide that it is not: where
/// there are blanks, each validation looks again.
void Trainer::check_held_out() {
  Feed all(task_.held_out, 0, place());
  int64_t at_once = options_.step.micro_batch * options_.step.mesh.dp;
  bool padded = all.micros_in_order() * at_once > task_.held_out->count();
  if (held_out_checked_ && (done_ == begun_ || !padded)) return;
  if (!held_out_checked_) (void)all.weight_in_order();
  std::vector<int64_t> blanks(size_t(options_.step.micro_batch), -1);
  Batches batch = [&](int64_t) {
    return batch_of(*task_.held_out, blanks, nn::evaluation, "validation");
  };
  auto check_zero = [](const std::string& what, double value) {
    check_input(value == 0, Exit::config,
                "samples: a batch of blanks (index -1) of the held-out samples has {} {}; expected "
                "0\n  Give a blank targets that do not count, such as -1 for cross_entropy.",
                what, value);
  };
  check_zero("loss", step_.sums_of(step_.evaluate(batch, 1))[0]);
  if (!task_.scores.empty()) {
    auto scores = step_.sums_of(step_.score(batch, 1, task_.scores));
    size_t at = 0;
    for (auto& [name, score] : task_.scores) check_zero(name, scores[at++]);
  }
  held_out_checked_ = true;
}

/// Is the validation of the last step the best so far? Remembers it.
bool Trainer::reaches_best() {
  bool reached = options_.keep_best && val_loss_ && std::isfinite(*val_loss_) &&
                 (!best_ || *val_loss_ < best_->second);
  if (reached) best_ = {done_, *val_loss_};
  return reached;
}

bool Trainer::lacks_validation() {
  return text_of_first(world_.host(), [&] {
           return metrics_ && metrics_->lacks_validation() ? "yes" : "";
         }) == "yes";
}

/// Runs the validation that is due but was not run: the last run was stopped in it, or the caller
/// took the steps. If the last step has metrics, adds the loss to them. Returns nothing if this run
/// is asked to stop, too.
std::optional<double> Trainer::make_up_validation() {
  auto loss = held_out_loss();
  bool best = reaches_best();
  if (directory_ && (best || saved_ != done_)) save();  // what was trained is kept
  check_finite(loss, done_);
  if (loss && metrics_ && done_ == begun_) metrics_->add_validation(*loss, scores_);
  if (loss) progress_.say(fmt::format("step {}  {}\n", done_, describe(*loss, scores_)));
  return loss;
}

}  // namespace triax::parallel
