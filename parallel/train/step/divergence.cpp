#include <cmath>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/step/step.h"

// The diagnosis of a step whose loss or gradient is not finite.
namespace triax::parallel {
namespace {

constexpr const char* the_loss = "the loss";  // named where all gradients are finite

/// Returns where this rank's data hold inf or NaN, in the model's dtype; empty: nowhere.
std::string non_finite_data(const StepInput& input, const StepOptions& o) {
  for (int64_t m = 0; m < o.accumulation(); ++m) {
    nn::Batch batch = nn::to(input.batches(m), cpu, o.dtype);
    Tensors held = nn::tensors(batch);
    for (size_t i = 0; i < held.size(); ++i) {
      const Tensor& x = held[i];
      if (!is_float(x.dtype())) continue;
      for (double v : x.contiguous().to(f64).to_host<double>())
        if (!std::isfinite(v))
          return fmt::format(
              "the {} of micro-batch {} (samples {} to {} in the order of training) has {} in {}",
              i == 0   ? "input"
              : i == 1 ? "target"
                       : fmt::format("extra {}", i - 2),
              m, batch.first, batch.first + x.size(0) - 1, unsigned_nan(v), o.dtype);
    }
  }
  return "";
}

}  // namespace

/// Runs the unchanged step once more, watched; returns where the first inf or NaN came from.
std::string Step::trace_overflow(const StepInput& input) {
  replica_.forward_backward(input.batches, seed(input), Replica::Watch::on);
  std::string found = describe(replica_.data().first_non_finite());
  return found.empty() ? the_loss : found;
}

void Step::check_data(const StepInput& input) const {
  together(mesh_.world(), [&] {
    std::string found = non_finite_data(input, options_);
    check_input(found.empty(), Exit::data,
                "samples: step {}: on rank {} {}; expected finite numbers", input.number,
                mesh_.world().rank(), found);
  });
}

void Step::check_finite(const StepResult& r, const StepInput& input) const try {
  if (!r.skipped && std::isfinite(r.loss) && std::isfinite(r.grad_norm)) return;
  bool scaled = options_.dtype == f16;
  if (scaled && !scaler_.exhausted()) return;
  check_data(input);
  const char* own_loss = options_.dtype != f32 && r.overflow == the_loss
                             ? "\n  A loss of your own has the dtype of its input: cast(x, f32) "
                               "before it."
                             : "";
  check_input(!scaled, Exit::non_finite,
              "train: {} steps in a row overflowed, the last at step {} with loss scale {}, first "
              "in {}; no weight was changed. Expected a finite gradient: try {}a lower --lr, or "
              "--precision bf16{}",
              scaler_.skips(), r.step, r.loss_scale, r.overflow,
              options_.loss_scale > 0 ? "--loss-scale 0, " : "", own_loss);
  fail(Exit::non_finite,
       "train: loss {} and gradient norm {} at step {}, first in {}; no weight was changed. "
       "Expected finite ones: try a lower --lr, more --warmup, or --clip{}{}",
       r.loss, r.grad_norm, r.step, r.overflow, own_loss,
       options_.bitwise
           ? fmt::format(
                 "\n  With --bitwise a sample's part of a gradient must be less than {:.3g} (of a "
                 "norm, or a bias behind a split layer: / --tp-slices); activations are limited "
                 "too (docs/parallelism.md).",
                 replica_.data().largest_part())
           : "");
} catch (const Error& e) {
  if (e.code() == Exit::peer_lost) throw;
  throw Diverged(e);
}

std::string describe(const DataParallel::NonFinite& found) {
  if (found.parameter.empty()) return "";
  std::string text = fmt::format("{} of rank {}", found.parameter, found.rank);
  return found.micro < 0 ? text : text + fmt::format(", micro-batch {}", found.micro);
}

}  // namespace triax::parallel
