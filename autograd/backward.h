#pragma once
#include <deque>
#include <utility>

#include "triax/autograd/node.h"

namespace triax {

namespace autograd {

class Pass;

/// Weight gradients that a backward pass deferred: the second half of a split backward (Qi et al.,
/// "Zero bubble pipeline parallelism", 2023).
class Later {
 public:
  /// Runs what was deferred, oldest first; does nothing if nothing was.
  void run();

 private:
  friend class Pass;
  std::shared_ptr<Pass> pass_;
  std::deque<std::pair<std::shared_ptr<Node>, Tensor>> jobs_;
};

/// Returns a rule for record()'s `later`: the gradient of a bias [width] that was added to rows is
/// the sum of dy over its rows.
Rule bias_rule(const Tensor& bias);

/// Calls `f` at the end of the backward pass that is running on this thread.
void after_backward(std::function<void()> f);

}  // namespace autograd

/// Accumulates dL/dx in every leaf x that y was computed from, given dy = dL/dy (by default 1, if y
/// has one element). Frees the graph on the way: a second backward over it throws. Called from
/// inside a rule it joins the running pass. With `later`, weight gradients are deferred to it.
void backward(const Tensor& y, Tensor dy = {}, autograd::Later* later = nullptr);

/// The form in which `recompute` saves its input: as it is, or packed (ranks that have the same
/// input can save a share each). `unpack` returns x, of this shape, bit for bit.
struct Packing {
  std::function<Tensor(const Tensor& x)> pack = {};
  std::function<Tensor(const Tensor& packed, const Shape& shape)> unpack = {};
};

/// Returns y = fn(x) and saves x alone; backward runs fn again (Chen et al., "Training deep nets
/// with sublinear memory cost", 2016). fn must be a pure function of x and of leaves. x may be
/// undefined. Gradients have the same bits as without recomputation.
Tensor recompute(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x,
                 const Packing& packing = {});

/// Returns x as the input of a new graph, whose backward leaves x's gradient in `dx`. It is
/// collected in x's dtype, as that of any op's output is (a leaf's is in the accumulator dtype), so
/// a graph that is cut in two there has the bits of a whole one.
Tensor graph_input(const Tensor& x, std::shared_ptr<Tensor> dx);

/// Makes backward collect the gradient of `y`, an op's output, in `dtype` instead of y's own; y's
/// rule receives it so. For a sum that continues elsewhere, such as on other ranks, and is rounded
/// when it is complete. Does nothing if y has no history.
void collect_gradient(const Tensor& y, DType dtype);
/// Makes backward run the rule of y's op, which starts something that goes on by itself, as soon as
/// it can: before the part of another rule that only leaves wait for. It must have no such part
/// itself. Does nothing if y has no history.
void run_early(const Tensor& y);
/// Makes `collector` collect the gradient of `y`, an op's output, whose rule then gets what
/// collector->take() returns. Does nothing if y has no history.
void collect_gradient(const Tensor& y, std::shared_ptr<autograd::Collector> collector);

/// Returns y, which ops have computed from `made`, and frees the bytes of `made`; when backward
/// reaches y, `again()` makes the same values again. For tensors that are cheap to make and large
/// to keep. `made` must be no view, and only the graph between it and y may use it.
Tensor remake(const Tensor& y, const Tensor& made, std::function<Tensor()> again);

/// Returns y's shape, dtype and history without its values: all that a backward pass from it needs.
Tensor without_values(const Tensor& y);

}  // namespace triax
