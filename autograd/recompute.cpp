#include <algorithm>

#include "autograd/backward.h"
#include "autograd/record.h"
#include "autograd/touched.h"

namespace triax {
namespace autograd {
namespace {

thread_local Touched* noting = nullptr;

}  // namespace

Touched::Touched() : outer_(noting) { noting = this; }
Touched::~Touched() {
  noting = outer_;
  if (outer_) note_touched(leaves_);
}

void note_touched(const Tensors& used) {
  if (!noting) return;
  auto& seen = noting->leaves_;
  for (auto& t : used)
    if (requires_grad(t) && t.meta()->node->is_leaf &&
        std::none_of(seen.begin(), seen.end(), [&](auto& o) { return o.is(t); }))
      seen.push_back(t);
}

}  // namespace autograd

Tensor recompute(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x) {
  if (!autograd::recording()) return fn(x);
  Tensor input = x.defined() ? x.detach() : x, result;
  Tensors inputs{x};  // the leaves are inputs too, so that the pass knows to wait for them
  {
    NoGrad guard;
    autograd::Touched touched;
    result = fn(input);
    inputs.insert(inputs.end(), touched.leaves().begin(), touched.leaves().end());
  }
  return record("recompute", result, inputs,
                [fn, input, count = inputs.size(), wanted = requires_grad(x)](const Tensor& dy) {
                  Tensors dx(count);  // the leaves' part comes out of the nested pass
                  Tensor again = input.defined() ? input.detach() : input;
                  if (wanted) require_grad(again);
                  Tensor y;
                  {
                    Recording on(Recording::on);
                    y = fn(again);
                  }
                  backward(y, dy);
                  if (wanted) dx[0] = std::exchange(grad(again), {});
                  return dx;
                });
}

}  // namespace triax
