#include "triax/autograd/backward.h"
#include "triax/autograd/ops/common.h"

namespace triax {
namespace {

int64_t count_targets(const Tensor& targets, int64_t ignore) {
  Tensor host = targets.to(cpu);
  int64_t counted = 0;
  visit_index(host.dtype(), [&]<class I>() {
    const I* t = host.data<I>();
    for (int64_t i = 0; i < host.numel(); ++i) counted += t[i] != ignore;
  });
  return counted;
}

/// Multiplies d in place by ratio [1], which is of the accumulator dtype.
void multiply(const Tensor& d, const Tensor& ratio) {
  Tensor k = zeros({4, d.size(1)}, ratio.dtype(), d.device());
  Tensor factor = k.narrow(0, 1, 1);
  copy_(factor, ratio.view({1, 1}).expand(factor.shape()));
  backend(d).channel_affine({}, d, k, d);
}

/// True if the gradient may be made in forward, provided that nobody else holds the logits.
bool gradient_ahead(const Tensor& logits, const CrossEntropyOptions& o) {
  const Tensor& seed = o.seed;
  return seed.defined() && o.parts == 1 && !o.combine && autograd::recording() &&
         requires_grad(logits) && seed.numel() == 1 && seed.device() == logits.device() &&
         seed.dtype() == accumulator(logits.dtype());
}

/// Checks what cross_entropy is given; returns the number of classes.
int64_t checked_classes(const Tensor& logits, const Tensor& targets,
                        const CrossEntropyOptions& options) {
  autograd::check_float("cross_entropy", logits);
  autograd::check_index("cross_entropy", logits, targets);
  check(logits.rank() == 2 && targets.shape() == Shape{logits.size(0)},
        "cross_entropy: logits {} and targets {}; expected [rows, classes] and [rows]", logits,
        targets);
  check(options.parts >= 1 && logits.size(1) % options.parts == 0 &&
            (options.parts == 1 || options.combine),
        "cross_entropy: {} parts of {} columns; expected equal ones, and a combine", options.parts,
        logits.size(1));
  check(options.smoothing >= 0 && options.smoothing < 1,
        "cross_entropy: smoothing {}; expected 0 <= smoothing < 1", options.smoothing);
  int64_t classes = options.slice.all < 0 ? logits.size(1) : options.slice.all;
  check(options.ignore < 0 || options.ignore >= classes,
        "cross_entropy: ignore {} is also a class; expected a value outside 0 to {}",
        options.ignore, classes - 1);
  if (targets.device() == cpu)
    autograd::check_range("cross_entropy", targets, classes, options.ignore);
  return classes;
}

/// Returns the factor of the summed losses: 1, or of a mean one over the targets that count.
double factor_of(const CrossEntropyOptions& options, const Tensor& targets) {
  if (options.reduction != CrossEntropyOptions::Reduction::mean) return 1;
  int64_t counted = count_targets(targets, options.ignore);
  return counted ? 1.0 / double(counted) : 0.0;
}

/// Finds the statistics [parts, rows, 4] of the columns, which are cut in so many equal parts.
void find_stats(const CrossEntropy& c, const Tensor& stats) {
  int64_t parts = stats.size(0), rows = stats.size(1), columns = c.logits.size(1) / parts;
  for (int64_t p = 0; p < parts; ++p) {
    CrossEntropy part = c;
    part.logits = c.logits.narrow(1, p * columns, columns).contiguous();
    part.first += p * columns;
    backend(c.logits).cross_entropy_stats(part, stats.narrow(0, p, 1).view({rows, 4}));
  }
}

}  // namespace

Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options) {
  int64_t rows = logits.rank() ? logits.size(0) : 0,
          classes = checked_classes(logits, targets, options);
  CrossEntropy c{logits.detach().contiguous(),
                 targets.contiguous(),
                 options.slice.first,
                 classes,
                 options.ignore,
                 options.smoothing};
  DType sums = accumulator(logits.dtype());
  Tensor stats = empty({options.parts, rows, 4}, sums, logits.device());
  Tensor losses = empty({rows}, sums, logits.device()), loss = empty({1}, sums, logits.device());
  auto scaled = [scale = factor_of(options, c.targets)](const Tensor& x) {
    return scale == 1 ? x : x * scale;
  };
  bool ahead = gradient_ahead(logits, options);
  if (ahead) logits = without_values(logits);
  ahead = ahead && c.logits.exclusive();
  Backend& on = backend(c.logits);
  if (ahead) {
    NoGrad guard;
    on.cross_entropy_at_once(c, stats.view({rows, 4}), scaled(options.seed.view({1})), c.logits);
  } else find_stats(c, stats);
  stats = options.combine ? options.combine(stats) : stats.view({rows, 4});
  on.cross_entropy_losses(c, stats, losses);
  on.sum(losses, loss, Write::set);
  auto rule = [c, stats, scaled, seed = ahead ? options.seed : Tensor()](const Tensor& dy) {
    if (seed.defined()) {
      if (dy.data() != seed.data()) multiply(c.logits, (dy / seed).view({1}));
      return Tensors{c.logits};
    }
    // The logits are not needed again: if nobody else holds them, the gradient takes their place.
    Tensor dlogits = c.logits.exclusive() ? c.logits : empty_like(c.logits);
    backend(dy).cross_entropy_backward(c, stats, scaled(dy), dlogits);
    return Tensors{dlogits};
  };
  Tensor y = record("cross_entropy", scaled(loss).view({}), {std::move(logits)}, std::move(rule));
  note_kept(y, {targets});
  return y;
}

}  // namespace triax
