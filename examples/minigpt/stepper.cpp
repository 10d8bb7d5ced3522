#include "examples/minigpt/stepper.h"

#include <string_view>

#include "core/check.h"
#include "core/profile.h"
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
      request_(zeros({StepRequest::size}, f64, mesh.world().device())),
      totals_(zeros({StepTotals::size}, f64, request_.device())),
      decision_(zeros({StepDecision::size}, f64, request_.device())),
      lag_(decision_.device() == cpu || c.precision == "fp16" ? 0 : 1) {
  const auto& world = mesh.world();
  check_input(!c.graph || world.size() == 1 || world.transport() == std::string_view("NCCL"),
              Exit::config,
              "graph with {} ranks over {}\n  They meet on the host, which a captured step cannot "
              "do. Leave --graph out, or give every rank a GPU of its own and --comm nccl.",
              world.size(), world.transport());
}

Stepper::Batches Stepper::batches_of(int64_t step) const {
  return [this, step](int64_t micro) { return feed_.at(step, micro); };
}

Tensor Stepper::forward_backward(const Batches& batches, Replica::Watch watch) {
  return replica_.step(batches, scaler_.scale() / double(tokens_per_step()), watch);
}

void Stepper::take(int64_t step) {
  StepRequest request{.lr = schedule_.at(adam_.steps() + 1),
                      .step = double(adam_.steps() + 1),
                      .loss_scale = scaler_.scale(),
                      .clip = config_.clip,
                      .halts = config_.precision == "fp16" ? 0. : 1.};
  copy_(request_, from_host(values_of(request), request_.shape(), cpu));
  if (config_.graph && taken_ >= 2) queue_graph(step);
  else queue(batches_of(step));
  ++taken_;
  pending_.push_back({step, request, TotalsToCome(mesh_.world(), totals_)});
}

/// All that a device does in a step.
void Stepper::queue(const Batches& batches) {
  ProfileRange range("step");
  Tensor loss = forward_backward(batches, Replica::Watch::off);
  fill_(totals_, 0);
  copy_(totals_.narrow(0, 0, 1), loss);
  data().add_squares(totals_.narrow(0, 1, 2));
  mesh_.world().all_reduce(totals_).wait();
  backend(decision_).decide_step(request_, totals_, decision_);
  adam_.step(decision_);
  data().publish();
}

void Stepper::queue_graph(int64_t step) {
  int64_t updates = adam_.steps();
  if (!captured_ || captured_->loss_scale != scaler_.scale()) capture(step);
  for (size_t m = 0; m < captured_->batches.size(); ++m) {
    nn::Batch now = feed_.at(step, int64_t(m));
    copy_(captured_->batches[m].ids, now.ids);
    copy_(captured_->batches[m].targets, now.targets);
  }
  captured_->graph->launch((step - captured_->step) * tokens_per_step());
  adam_.set_steps(updates + 1);
}

void Stepper::capture(int64_t step) {
  captured_.reset();
  Captured c{.step = step, .loss_scale = scaler_.scale()};
  for (int64_t m = 0; m < config_.accumulation(); ++m) {
    nn::Batch b = feed_.at(step, m);
    b.ids = b.ids.to(decision_.device()), b.targets = b.targets.to(decision_.device());
    c.batches.push_back(b);
  }
  auto fixed = [&c](int64_t micro) { return c.batches[size_t(micro)]; };
  c.graph = backend(decision_).capture([&] { queue(fixed); });
  captured_ = std::move(c);
}

std::vector<StepRecord> Stepper::records(Upto upto) {
  std::vector<StepRecord> records;
  for (; pending_.size() > (upto == Upto::all ? 0 : lag_); pending_.pop_front())
    records.push_back(record(pending_.front()));
  return records;
}

StepRecord Stepper::record(const Pending& p) {
  auto values = p.totals.sums();
  StepTotals sums{.loss = values[0], .squares = values[1], .non_finite = values[2]};
  auto norm = parallel::DataParallel::norm_of(std::span(values).subspan(1));
  Totals totals = p.totals.totals();
  StepRecord r{.step = p.step,
               .loss = sums.loss / double(tokens_per_step()),
               .grad_norm = norm.value / p.request.loss_scale,
               .lr = p.request.lr,
               .tokens = tokens_per_step(),
               .memory_bytes = totals.memory_bytes,
               .loss_scale = p.request.loss_scale,
               .skipped = !sums.finite()};
  if (r.skipped) {
    adam_.set_steps(adam_.steps() - 1);
    r.overflow = trace_overflow(r.step);
    if (r.overflow.empty()) r.overflow = "the loss";
  }
  scaler_.update(r.skipped);
  check_finite(r, config_, scaler_);
  stop_ |= totals.stop;
  return r;
}

/// Runs the unchanged step once more, watched: where did the first inf or NaN come from?
std::string Stepper::trace_overflow(int64_t step) {
  forward_backward(batches_of(step), Replica::Watch::on);
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
  mesh_.world().all_reduce(mine).wait();
  return TotalsToCome(mesh_.world(), mine).totals().loss / double(text_.val_tokens());
}

}  // namespace triax::minigpt
