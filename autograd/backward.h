#pragma once
#include <deque>
#include <utility>

#include "autograd/node.h"

namespace triax {

namespace autograd {

class Pass;

/// Weight gradients put off by a backward pass: the second half of a split backward (Qi et al.,
/// "Zero bubble pipeline parallelism", 2023).
class Later {
 public:
  /// Run what was put off, oldest first. Nothing if there is nothing.
  void run();

 private:
  friend class Pass;
  std::shared_ptr<Pass> pass_;
  std::deque<std::pair<std::shared_ptr<Node>, Tensor>> jobs_;
};

/// A rule for record()'s `later`: the gradient of a bias [width] that was added to rows, the sums
/// of dy's columns.
Rule bias_rule(const Tensor& bias);

/// Call `f` at the end of the backward pass that is running on this thread.
void after_backward(std::function<void()> f);

}  // namespace autograd

/// Collect dL/dx in every leaf x that y was computed from, given dy = dL/dy (1 if y has one
/// element and dy is not given). Frees the graph on the way: a second backward over it throws.
/// Called from inside a rule it joins the running pass. With `later`, weight gradients wait there.
void backward(const Tensor& y, Tensor dy = {}, autograd::Later* later = nullptr);

/// How `recompute` keeps its input: as it is, or packed (ranks that have the same input can keep a
/// share each). `unpack` gives back x, of this shape, bit for bit.
struct Packing {
  std::function<Tensor(const Tensor& x)> pack = {};
  std::function<Tensor(const Tensor& packed, const Shape& shape)> unpack = {};
};

/// y = fn(x), keeping x only; backward runs fn again (Chen et al., "Training deep nets with
/// sublinear memory cost", 2016). fn must be a pure function of x and of leaves. x may be
/// undefined. Gradients have the bits that they have without.
Tensor recompute(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x,
                 const Packing& packing = {});

/// x as the input of a graph of its own. Its gradient is collected in x's dtype, as that of any
/// op's output is (a leaf's is in the accumulator's), so that a graph cut in two there has the bits
/// of a whole one; backward leaves it in `dx`.
Tensor graph_input(const Tensor& x, std::shared_ptr<Tensor> dx);

/// Collects the gradient of `y`, an op's output, in `dtype` instead of y's own: its rule gets it
/// so. For a sum that goes on elsewhere, such as on other ranks, and is to be rounded when it is
/// whole. Nothing if y has no history.
void collect_gradient(const Tensor& y, DType dtype);

/// y, which ops have computed from `made`: the bytes of `made` go now, and when backward reaches y
/// they are made again by `again()`, which returns the same values. For what is cheap to make and
/// large to keep. `made` is whole (no view) and nobody uses it but the graph between it and y.
Tensor remake(const Tensor& y, const Tensor& made, std::function<Tensor()> again);

/// All of `y` that a backward pass from it needs: shape, dtype and history, without the values.
Tensor without_values(const Tensor& y);

}  // namespace triax
