#include "triax/parallel/train/validation.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "triax/core/check.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {

void Validation::check_finite(std::optional<double> val_loss, int64_t step) {
  check_input(
      !val_loss || std::isfinite(*val_loss), Exit::non_finite,
      "validation: loss {} after step {}, whose training loss is finite; expected a finite "
      "one\n  The last update may have been too large: resume from an earlier checkpoint with a "
      "smaller --lr.\n  Else look for inf and NaN in the held-out samples. Other samples are "
      "another run, with an --out of\n  its own; this one trains on with --val-every 0.",
      val_loss.value_or(0), step);
}

std::optional<double> Validation::run(int64_t done, Progress& progress) {
  ProfileRange range("validation");
  std::optional<double> loss;
  step_.with_average([&] { check_blanks(done), loss = pass(progress); });
  return loss;
}

void Validation::check_blanks(int64_t done) {
  Feed all(task_.held_out, 0, place_);
  int64_t at_once = place_.micro_batch * place_.replicas;
  bool padded = all.micros_in_order() * at_once > task_.held_out->count();
  bool first = checked_at_ < 0;
  if (!first && (done == checked_at_ || !padded)) return;
  if (first) (void)all.weight_in_order();
  std::vector<int64_t> blanks(size_t(place_.micro_batch), -1);
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
  checked_at_ = done;
}

/// Validates in slices, between which ranks ask each other to stop: a pass may take minutes.
std::optional<double> Validation::pass(Progress& progress) {
  Feed all(task_.held_out, 0, place_);
  int64_t micros = all.micros_in_order(), slice = std::max(8, 2 * step_.mesh().pp().size());
  double weight = all.weight_in_order();
  std::vector<double> losses, scores;
  auto add = [](std::vector<double>& sums, const std::vector<double>& more) {
    sums.resize(more.size());
    std::ranges::transform(sums, more, sums.begin(), std::plus());
  };
  for (int64_t done = 0; done < micros; done += slice) {
    if (reduced(world_.host(), double(StopSignal::seen()), ReduceOp::max) != 0) return {};
    int64_t now = std::min(slice, micros - done);
    Batches batches = [&](int64_t micro) { return all.in_order(done + micro); };
    add(losses, step_.evaluate(batches, now));
    if (!task_.scores.empty()) add(scores, step_.score(batches, now, task_.scores));
    progress.validating(done + now, micros);
  }
  scores = step_.sums_of(scores);
  size_t at = 0;
  for (auto& [name, score] : task_.scores)
    scores_[name] = (scores.empty() ? 0 : scores[at++]) / weight;
  return unsigned_nan((losses.empty() ? 0 : step_.sums_of(losses)[0]) / weight);
}

}  // namespace triax::parallel
