#include "autograd/record.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "autograd/backward.h"
#include "autograd/touched.h"
#include "core/check.h"
#include "core/profile.h"

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

SamplesAtOnce::SamplesAtOnce(int64_t count) : outer_(std::exchange(autograd::samples, count)) {}
SamplesAtOnce::~SamplesAtOnce() { autograd::samples = outer_; }

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
  const Slot& s = slots_[i];
  if (!s.rounding && s.held.defined() && s.held.dtype() == dtype && s.held.shape() == shape)
    return {s.held, s.write};
  return {empty(shape, dtype, device), Write::set};
}

ProductTarget Into::product(size_t i, const Shape& shape, DType dtype, Device device) const {
  const Slot& s = slots_[i];
  if (s.rounding && s.held.shape() == shape) return {{s.held, s.write}, s.rounding.get()};
  return {at(i, shape, dtype, device)};
}

Tensor Into::rows(const Tensor& x) {
  if (!cuts_) return x;
  int64_t each = x.size(0) / samples_;  // rows of a sample
  check_input(samples_ == 1 || (each * samples_ == x.size(0) && each % Matmul::block == 0),
              Exit::config,
              "bitwise: a weight is used by {} rows of {} samples; expected a multiple of {} for "
              "each in a layer that is `independent`\n  Take --micro-batch 1.",
              x.size(0), samples_, Matmul::block);
  bool even = each % sums_.chains == 0;
  parts_ = even ? samples_ * sums_.chains : samples_;
  if (parts_ == 1) return x;
  each = x.size(0) / parts_;
  return x.detach().narrow(0, part_ * each, each);
}

/// Moves on to the next part; false after the last. Throws if rows had to be cut and were not.
bool Into::next(const char* op) {
  check_input(samples_ == 1 || parts_ > 0, Exit::config,
              "bitwise: {} does not sum the gradient of a weight sample by sample; expected "
              "products with a weight, norms, embedding or x + bias in a layer that is "
              "`independent`\n  Take --micro-batch 1.",
              op);
  check_input(
      !sums_.must || parts_ == samples_ * sums_.chains, Exit::config,
      "bitwise with sequence-parallel: {} does not sum the gradient of a weight in {} equal "
      "parts of the rows that a rank has of a sample; expected rows that can be cut so, and "
      "layer_norm, rms_norm, embedding, linear or x + bias\n  Take sequences of a "
      "length that --tp-slices divides, or leave --sequence-parallel out.",
      op, sums_.chains);
  for (auto& s : slots_) s.write = Write::add;
  return ++part_ < parts_;
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

void set_grad_view(const Tensor& leaf, const Tensor& view) { set_grad_view(leaf, view, {}); }

void set_grad_view(const Tensor& leaf, const Tensor& view, const autograd::FixedSums& fixed) {
  Meta& meta = leaf_meta("set_grad_view", leaf);
  DType sums = fixed.rounding ? f64 : accumulator(leaf.dtype());
  check(view.shape() == leaf.shape() && view.dtype() == sums,
        "set_grad_view: {} for a leaf {}; expected the same shape and dtype {}", view, leaf, sums);
  meta.grad = view;
  meta.in_place = true;
  meta.fresh = true;
  meta.fixed = fixed;
}

int64_t take_parts(const Tensor& leaf) {
  return std::exchange(leaf_meta("take_parts", leaf).parts, 0);
}
void set_fresh(const Tensor& leaf) { leaf_meta("set_fresh", leaf).fresh = true; }
bool is_fresh(const Tensor& leaf) { return leaf_meta("is_fresh", leaf).fresh; }

void collect_gradient(const Tensor& y, DType dtype) {
  if (!requires_grad(y)) return;
  check(!y.meta()->node->is_leaf && is_float(dtype),
        "collect_gradient: {} in {}; expected an op's output, and a float dtype", y, dtype);
  y.meta()->node->dtype = dtype;
}

Recording::Recording(Mode mode) : outer_(autograd::on) { autograd::on = mode == on; }
Recording::~Recording() { autograd::on = outer_; }

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
