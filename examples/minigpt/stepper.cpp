#include "examples/minigpt/stepper.h"

#include "examples/minigpt/offload.h"
#include "examples/minigpt/precision.h"

namespace triax::minigpt {

Stepper::Stepper(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh)
    : config_(c),
      text_(text),
      mesh_(mesh),
      feed_(c, text, mesh.dp()),
      replica_(c, mesh),
      adam_(data().slots(), adam_options(c)),
      schedule_{.peak = c.lr, .low = c.min_lr, .warmup = c.warmup, .steps = c.steps},
      scaler_(scaling(c)),
      plan_(zeros({UpdatePlan::size}, f64, mesh.world().device())),
      lag_(plan_.device() == cpu || c.precision == "fp16" ? 0 : 1) {}

Tensor Stepper::forward_backward(int64_t step, Replica::Watch watch) {
  return replica_.step([&](int64_t micro) { return feed_.at(step, micro); },
                       scaler_.scale() / double(tokens_per_step()), watch);
}

void Stepper::take(int64_t step) {
  Tensor loss = forward_backward(step, Replica::Watch::off);
  Tensor sums = zeros({3}, f64, plan_.device());  // loss, squares, non-finite
  copy_(sums.narrow(0, 0, 1), loss);
  data().add_squares(sums.narrow(0, 1, 2));
  TotalsToCome totals(mesh_.world(), sums);
  UpdateWish wish{.lr = schedule_.at(adam_.steps() + 1),
                  .step = double(adam_.steps() + 1),
                  .loss_scale = scaler_.scale(),
                  .clip = config_.clip,
                  .halts = config_.precision == "fp16" ? 0. : 1.};
  Tensor wished = from_host(values_of(wish), {UpdateWish::size}, plan_.device());
  backend(plan_).plan_update(wished, sums.narrow(0, 1, 2), plan_);
  adam_.step(plan_);
  data().publish();
  pending_.push_back({step, wish, std::move(totals)});
}

std::vector<StepRecord> Stepper::records(Upto upto) {
  std::vector<StepRecord> records;
  for (; pending_.size() > (upto == Upto::all ? 0 : lag_); pending_.pop_front())
    records.push_back(record(pending_.front()));
  return records;
}

StepRecord Stepper::record(const Pending& p) {
  auto sums = p.totals.sums();
  auto norm = parallel::DataParallel::norm_of(std::span(sums).subspan(1));
  Totals totals = p.totals.totals();
  StepRecord r{.step = p.step,
               .loss = totals.loss / double(tokens_per_step()),
               .grad_norm = norm.value / p.wish.loss_scale,
               .lr = p.wish.lr,
               .tokens = tokens_per_step(),
               .memory_bytes = totals.memory_bytes,
               .loss_scale = p.wish.loss_scale,
               .skipped = norm.non_finite > 0};
  if (r.skipped) {
    adam_.set_steps(adam_.steps() - 1);
    r.overflow = trace_overflow(r.step);
  }
  scaler_.update(r.skipped);
  check_finite(r, config_, scaler_);
  stop_ |= totals.stop;
  return r;
}

/// Runs the unchanged step once more, watched: where did the first inf or NaN come from?
std::string Stepper::trace_overflow(int64_t step) {
  forward_backward(step, Replica::Watch::on);
  return describe(data().first_non_finite());
}

double Stepper::validate() {
  const auto& dp = mesh_.dp();
  int64_t each = config_.micro_batch * dp.size();
  auto batch = [&](int64_t micro) {
    int64_t first = micro * each + dp.rank() * config_.micro_batch;
    nn::Batch b = text_.val_batch(first, config_.micro_batch);
    b.first = nn::evaluation;
    return b;
  };
  Tensor mine = replica_.evaluate((text_.val_windows() + each - 1) / each, batch);
  return TotalsToCome(mesh_.world(), mine).totals().loss / double(text_.val_tokens());
}

}  // namespace triax::minigpt
