#include <cmath>

#include "core/check.h"
#include "parallel/comm/together.h"
#include "parallel/train/step.h"

// What a step does whose loss or gradient is not finite.
namespace triax::parallel {
namespace {

/// Which inputs of this rank hold inf or NaN, in the model's dtype; empty: none.
std::string non_finite_inputs(const StepInput& input, const StepOptions& o) {
  for (int64_t m = 0; m < o.accumulation(); ++m) {
    nn::Batch batch = nn::to(input.batches(m), cpu, o.dtype);
    if (!is_float(batch.input.dtype())) continue;
    for (double x : batch.input.contiguous().to(f64).to_host<double>())
      if (!std::isfinite(x))
        return fmt::format(
            "micro-batch {} (samples {} to {} in the order of training) has {} in {}", m,
            batch.first, batch.first + batch.input.size(0) - 1, x, o.dtype);
  }
  return "";
}

}  // namespace

/// Runs the unchanged step once more, watched: where did the first inf or NaN come from? Throws
/// Error 65 if it is in the data.
std::string Step::trace_overflow(const StepInput& input) {
  together(mesh_.world(), [&] {
    std::string found = non_finite_inputs(input, options_);
    check_input(found.empty(), Exit::data,
                "samples: step {}: on rank {} the input of {}; expected "
                "finite numbers",
                input.number, mesh_.world().rank(), found);
  });
  replica_.forward_backward(input.batches, seed(input), Replica::Watch::on);
  return describe(replica_.data().first_non_finite());
}

void Step::check_finite(const StepResult& r) const {
  if (!r.skipped && std::isfinite(r.loss) && std::isfinite(r.grad_norm)) return;
  bool scaled = options_.dtype == f16;
  if (scaled && !scaler_.exhausted()) return;
  check_input(!scaled, Exit::non_finite,
              "train: {} steps in a row overflowed, the last at step {} with loss scale {}, first "
              "in {}; no weight was changed. Expected a finite gradient: try {}a lower --lr, or "
              "--precision bf16",
              scaler_.skips(), r.step, r.loss_scale, r.overflow,
              options_.loss_scale > 0 ? "--loss-scale 0, " : "");
  fail(Exit::non_finite,
       "train: loss {} and gradient norm {} at step {}, first in {}; no weight was changed. "
       "Expected finite ones: try a lower --lr, more --warmup, or --clip",
       r.loss, r.grad_norm, r.step, r.overflow);
}

std::string describe(const DataParallel::NonFinite& found) {
  if (found.parameter.empty()) return "";
  std::string text = fmt::format("{} of rank {}", found.parameter, found.rank);
  return found.micro < 0 ? text : text + fmt::format(", micro-batch {}", found.micro);
}

}  // namespace triax::parallel
