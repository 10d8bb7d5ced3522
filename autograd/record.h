#pragma once

#include "triax/autograd/node.h"

namespace triax {

/// Makes `x` a leaf: backward collects its gradient in grad(x), in the accumulator dtype.
/// Float dtypes only. Returns x.
Tensor& require_grad(Tensor& x);
/// True if `x` is a leaf or was computed from one while recording.
bool requires_grad(const Tensor& x);
/// Returns the gradient collected in a leaf; undefined before backward. Assign {} to drop it.
Tensor& grad(const Tensor& leaf);
/// Calls `hook` once per backward pass, as soon as the leaf's gradient is complete for that pass,
/// however often it was used. Hooks fire in the same order on every rank.
void on_grad(const Tensor& leaf, std::function<void()> hook);
/// Makes the leaf's gradient live in `view` (of its shape), a piece of a larger buffer: backward
/// adds to it; after view->set_fresh() the first write sets instead.
void collect_in(const Tensor& leaf, std::shared_ptr<autograd::GradientView> view);

/// Switches recording on or off on this thread while it lives.
class Recording : Scoped<bool> {
 public:
  enum Mode { off, on };
  explicit Recording(Mode mode);
};
/// While it lives, ops on this thread record nothing.
struct NoGrad : Recording {
  NoGrad() : Recording(off) {}
};

/// Gives `y`, computed from `inputs`, its backward rule: this is all there is to a differentiable
/// function. The rule must not capture y itself (capture y.detach()), else the node owns itself and
/// never dies. Returns y, unchanged if no input wants a gradient.
///
/// `later` is the part that only `leaves` wait for (dropped if none wants a gradient): it runs
/// after `rule`, or later if the caller of backward defers it (zero-bubble pipelines).
Tensor record(const char* name, Tensor y, const Tensors& inputs, autograd::Rule rule,
              const Tensors& leaves = {}, autograd::Rule later = {});

/// Makes backward of y throw if one of `kept`, which the rule keeps besides its inputs and y, was
/// overwritten in place since. (Not seen: what a function that recompute() runs reads besides x.)
void note_kept(const Tensor& y, const Tensors& kept);

/// Records a rule that does not use Into, the common case.
template <class F>
requires std::is_invocable_r_v<Tensors, F, const Tensor&> Tensor record(const char* name, Tensor y,
                                                                        const Tensors& inputs,
                                                                        F rule) {
  return record(name, std::move(y), inputs,
                autograd::Rule([rule = std::move(rule)](const Tensor& dy, autograd::Into&) {
                  return rule(dy);
                }));
}

}  // namespace triax
