#include "triax/autograd/record.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "triax/autograd/backward.h"
#include "triax/autograd/scopes.h"
#include "triax/core/check.h"
#include "triax/core/profile.h"

namespace triax {
namespace autograd {
namespace {

std::atomic<int64_t> alive = 0;
thread_local uint64_t created = 0;
thread_local bool on = true;
thread_local int64_t samples = 1;

}  // namespace

bool recording() { return on; }
int64_t live_nodes() { return alive; }
int64_t samples_at_once() { return samples; }

SamplesAtOnce::SamplesAtOnce(int64_t count) : Scoped(samples, count) {}

Seen::Seen(const Tensor& x)
    : storage(x.storage()), handle(x.handle()), writes(x.storage()->writes()) {}

bool Seen::changed() const {
  auto alive = storage.lock();
  return alive && alive->writes() != writes;
}

Node::Node(const char* op, const Tensor& y, std::vector<std::shared_ptr<Node>> producers,
           Rule backward)
    : name(op),
      layer(profiled_layer()),
      order(created++),
      samples(autograd::samples),
      shape(y.shape()),
      dtype(y.dtype()),
      inputs(std::move(producers)),
      rule(std::move(backward)) {
  ++alive;
}

// If the rule kept a changed tensor, that has fewer holders once the rule is gone. (Nobody else
// takes or drops one meanwhile: tensors of a graph belong to one thread.)
void Node::drop_rule() {
  std::vector<std::pair<const Seen*, long>> changed;
  for (auto& s : seen)
    if (s.changed()) changed.emplace_back(&s, s.holders());
  rule = nullptr;
  ran = true;  // so that a second backward is recognised
  for (auto& [s, holders] : changed)
    check(s->holders() == holders,
          "backward: {} has kept values that were overwritten since (by copy_, fill_ or a "
          "collective), so its gradient may be wrong\n  Write to a clone() or to a new tensor.",
          name);
  seen.clear();
}

// A chain of nodes is taken apart in a loop: recursion would overflow the stack on deep graphs.
Node::~Node() {
  --alive;
  std::vector<std::shared_ptr<Node>> doomed;
  auto take = [&](Node& n) {
    for (auto& i : n.inputs)
      if (i.use_count() == 1) doomed.push_back(std::move(i));
    n.inputs.clear();
    if (n.later.use_count() == 1) doomed.push_back(std::move(n.later));
  };
  take(*this);
  while (!doomed.empty()) {
    std::shared_ptr<Node> n = std::move(doomed.back());
    doomed.pop_back();
    take(*n);
  }
}

Target Into::at(size_t i, const Shape& shape, DType dtype, Device device) const {
  const Sums& s = slots_[i].held;
  if (!s.grid && s.to.defined() && s.to.dtype() == dtype && s.to.shape() == shape)
    return {s.to, s.write};
  return {empty(shape, dtype, device), Write::set};
}

Sums Into::sums(size_t i, const Shape& shape, DType dtype, Device device, Sums::Over over) const {
  if (!wanted(i)) return {};
  const Sums& s = slots_[i].held;
  bool fits = s.grid && s.over == over && s.to.shape() == shape;
  return fits ? s : at(i, shape, dtype, device);
}

Sums GradientView::offer(const Node&) {
  if (!view_.storage()->present()) {  // a bucket whose bytes were given to its reduction
    view_.storage()->restore();
    fresh_ = true;
  }
  return {view_, write()};
}

void GradientView::collect(const Node&, const Tensor& part) {
  if (!part.is(view_)) {
    if (fresh_) copy_(view_, part);
    else backend(part).accumulate(part.contiguous(), view_);
  }
  written();
}

}  // namespace autograd

using autograd::Meta;
using autograd::Node;

namespace {

Meta& leaf_meta(const char* what, const Tensor& x) {
  check(requires_grad(x) && x.meta()->node->is_leaf,
        "{}: {} is not a leaf; call require_grad on it first", what, x);
  return *x.meta();
}

std::vector<std::shared_ptr<Node>> producers(const Tensors& inputs) {
  std::vector<std::shared_ptr<Node>> nodes;
  nodes.reserve(inputs.size());
  for (auto& t : inputs) nodes.push_back(requires_grad(t) ? t.meta()->node : nullptr);
  return nodes;
}

}  // namespace

Tensor& require_grad(Tensor& x) {
  check(is_float(x.dtype()), "require_grad: {}; only float tensors have gradients", x);
  check(!requires_grad(x) || x.meta()->node->is_leaf,
        "require_grad: {} was computed by {}; only a leaf can be made to require a gradient", x,
        x.meta() ? x.meta()->node->name : "");
  if (requires_grad(x)) return x;
  auto meta = std::make_shared<Meta>();
  meta->node =
      std::make_shared<Node>("leaf", x, std::vector<std::shared_ptr<Node>>{}, autograd::Rule{});
  meta->node->is_leaf = true;
  meta->node->dtype = accumulator(x.dtype());
  meta->node->leaf = meta;
  x.meta() = std::move(meta);
  x.is_leaf() = true;
  return x;
}

bool requires_grad(const Tensor& x) { return x.defined() && x.meta() != nullptr; }

Tensor& grad(const Tensor& leaf) { return leaf_meta("grad", leaf).grad; }

void on_grad(const Tensor& leaf, std::function<void()> hook) {
  leaf_meta("on_grad", leaf).on_grad.push_back(std::move(hook));
}

void collect_in(const Tensor& leaf, std::shared_ptr<autograd::GradientView> view) {
  Meta& meta = leaf_meta("collect_in", leaf);
  DType to = view->view().dtype(), sums = accumulator(leaf.dtype());
  check(view->view().shape() == leaf.shape() && (to == sums || to == f64),
        "collect_in: {} for a leaf {}; expected its shape, and {} or f64", view->view(), leaf,
        sums);
  meta.grad = view->view();
  meta.node->collector = std::move(view);
}

void collect_gradient(const Tensor& y, DType dtype) {
  if (!requires_grad(y)) return;
  check(!y.meta()->node->is_leaf && is_float(dtype),
        "collect_gradient: {} in {}; expected an op's output, and a float dtype", y, dtype);
  y.meta()->node->dtype = dtype;
}

void collect_gradient(const Tensor& y, std::shared_ptr<autograd::Collector> collector) {
  if (!requires_grad(y)) return;
  check(!y.meta()->node->is_leaf, "collect_gradient: {}; expected an op's output", y);
  y.meta()->node->collector = std::move(collector);
}

void run_early(const Tensor& y) {
  if (!requires_grad(y)) return;
  check(!y.meta()->node->later, "run_early: {} has a part that only leaves wait for",
        y.meta()->node->name);
  y.meta()->node->early = true;
}

Recording::Recording(Mode mode) : Scoped(autograd::on, mode == on) {}

Tensor record(const char* name, Tensor y, const Tensors& inputs, autograd::Rule rule,
              const Tensors& leaves, autograd::Rule later) {
  if (!autograd::on) {
    autograd::note_touched(inputs);
    autograd::note_touched(leaves);
    return y;
  }
  bool wanted = std::ranges::any_of(inputs, requires_grad);
  bool trains = std::ranges::any_of(leaves, requires_grad);
  if (!wanted && !trains) return y;
  bool shared = requires_grad(y);
  for (auto* list : {&inputs, &leaves})
    for (auto& t : *list) shared |= t.is(y);
  if (shared) y = y.detach();  // an identity: its output is another tensor than its input
  auto meta = std::make_shared<Meta>();
  meta->node = std::make_shared<Node>(name, y, producers(inputs), std::move(rule));
  auto see = [&](Node& n) {
    n.seen.reserve(inputs.size() + leaves.size() + 2);  // y, and one that note_kept() adds
    for (auto* list : {&inputs, &leaves})
      for (auto& t : *list)
        if (t.defined()) n.seen.emplace_back(t);
    n.seen.emplace_back(y);
  };
  see(*meta->node);
  if (trains && later) {  // else the rule goes, and with it what it keeps of the inputs
    meta->node->later = std::make_shared<Node>(name, y, producers(leaves), std::move(later));
    see(*meta->node->later);
  }
  y.meta() = std::move(meta);
  return y;
}

void note_kept(const Tensor& y, const Tensors& kept) {
  if (!requires_grad(y)) return;
  Node& n = *y.meta()->node;
  for (auto& x : kept) {
    if (!x.defined()) continue;
    n.seen.emplace_back(x);
    if (n.later) n.later->seen.emplace_back(x);
  }
}

}  // namespace triax
