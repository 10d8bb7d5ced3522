#include <algorithm>

#include "triax/autograd/backward.h"
#include "triax/autograd/gelu.h"
#include "triax/autograd/record.h"
#include "triax/autograd/scopes.h"
#include "triax/core/check.h"

namespace triax {
namespace autograd {
namespace {

thread_local Touched* noting = nullptr;
thread_local bool second_run = false;

}  // namespace

Touched::Touched() : outer_(noting) { noting = this; }
Touched::~Touched() {
  noting = outer_;
  if (outer_) note_touched(leaves_);
}

bool recomputing() { return second_run; }

void note_touched(const Tensors& used) {
  if (!noting) return;
  auto& seen = noting->leaves_;
  for (auto& t : used)
    if (requires_grad(t) && t.meta()->node->is_leaf &&
        std::none_of(seen.begin(), seen.end(), [&](auto& o) { return o.is(t); }))
      seen.push_back(t);
}

}  // namespace autograd

Tensor graph_input(const Tensor& x, std::shared_ptr<Tensor> dx) {
  Tensor anchor = empty({}, x.dtype(), x.device());
  return record("input", x, {require_grad(anchor)}, [dx = std::move(dx)](const Tensor& dy) {
    *dx = dy;
    return Tensors{{}};
  });
}

Tensor recompute(const std::function<Tensor(const Tensor&)>& fn, const Tensor& x,
                 const Packing& packing) {
  if (!autograd::recording()) return fn(x);
  Tensor input = x.defined() ? x.detach() : x, result;
  Tensors inputs{x};  // the leaves are inputs too, so that the pass knows to wait for them
  {
    NoGrad guard;
    autograd::Touched touched;
    result = fn(input);
    inputs.insert(inputs.end(), touched.leaves().begin(), touched.leaves().end());
  }
  Shape shape = x.defined() ? x.shape() : Shape{};
  bool packs = packing.pack && x.defined();
  if (packs) input = packing.pack(input);
  bool wanted = requires_grad(x), leaf = wanted && x.meta()->node->is_leaf;
  auto rule = [=, unpack = packing.unpack, count = inputs.size(),
               alike = autograd::RowsAlike::now()](Tensor dy, autograd::Into&) {
    Tensors dx(count);  // the leaves' part comes out of the nested pass
    Tensor again = packs ? unpack(input, shape) : input.defined() ? input.detach() : input;
    auto gradient = std::make_shared<Tensor>();
    Tensor y;
    {
      Recording on(Recording::on);
      Scoped here(autograd::second_run, true);
      autograd::RowsAlike as_recorded(alike);
      if (leaf) require_grad(again);
      else if (wanted) again = graph_input(again, gradient);
      y = without_values(fn(again));
    }
    backward(y, std::move(dy));
    dx[0] = leaf ? std::exchange(grad(again), {}) : *gradient;
    return dx;
  };
  return record("recompute", result, inputs, rule);
}

Tensor remake(const Tensor& y, const Tensor& made, std::function<Tensor()> again) {
  if (!autograd::recording() || !requires_grad(y)) return y;
  // Goes below the activation, whose slope the next product may apply, unless `made` is that x.
  Tensor x = autograd::gelu_input(y);
  if (x.defined() && x.storage() != made.storage())
    return autograd::record_gelu(y.detach(), remake(x, made, std::move(again)), x.detach());
  check(made.bytes() == made.storage()->bytes(), "remake: {} is a part of {} bytes; expected all",
        made, made.storage()->bytes());
  made.storage()->release();
  return record("remake", y.detach(), {y},
                [storage = made.storage(), again = std::move(again)](const Tensor& dy) {
                  Tensor values = again();
                  storage->take_from(*values.storage());
                  return Tensors{dy};
                });
}

Tensor without_values(const Tensor& y) {
  auto none = std::make_shared<Storage>(0, y.device(), nullptr);
  none->release();  // reading them is an error
  Tensor stub(std::move(none), y.dtype(), y.shape(), contiguous_strides(y.shape()));
  stub.meta() = y.meta();
  return stub;
}

}  // namespace triax
