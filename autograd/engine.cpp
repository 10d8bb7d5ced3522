#include "triax/autograd/engine.h"

#include <algorithm>

#include "triax/autograd/record.h"
#include "triax/core/check.h"
#include "triax/core/profile.h"

namespace triax {
namespace autograd {
namespace {

thread_local Pass* running = nullptr;

void add_to(Tensor& held, const Tensor& part) {
  if (!held.exclusive()) held = clone(held);
  backend(held).accumulate(part, held);
}

/// True if all inputs of `n` that want a gradient are leaves.
bool of_leaves(const Node& n) {
  auto leaf = [](auto& i) { return !i || i->is_leaf; };
  return std::all_of(n.inputs.begin(), n.inputs.end(), leaf);
}

}  // namespace

void Pass::run(const std::shared_ptr<Node>& root, Tensor dy) {
  Walk walk;
  if (root->is_leaf) {  // a function that is computed again hands its input straight through
    ++awaited_[root.get()];
    Node identity("identity", dy, {root},
                  [](const Tensor& g, Into&) { return Tensors{g.detach()}; });
    return run_rule(identity, dy, walk);
  }
  count(*root, walk);
  if (root->collector) root->collector->collect(*root, std::exchange(dy, {}));
  else walk.grads[root.get()] = std::exchange(dy, {}).to(root->dtype);
  walk.ready.push(root);
  while (!walk.ready.empty()) {
    auto [n, g] = take(walk);
    if (!n->later) {
      run_rule(*n, std::move(g), walk);
      continue;
    }
    run_rule(*n, g, walk);
    while (!walk.ready.empty() && walk.ready.top()->early) {
      auto [early, its] = take(walk);
      run_rule(*early, std::move(its), walk);
    }
    if (later_ && of_leaves(*n->later)) later_->jobs_.emplace_back(n->later, g);
    else run_rule(*n->later, g, walk);
  }
}

/// Takes the newest node that is ready, with its gradient.
std::pair<std::shared_ptr<Node>, Tensor> Pass::take(Walk& walk) {
  std::shared_ptr<Node> n = walk.ready.top();
  walk.ready.pop();
  Tensor g = n->collector ? n->collector->take() : std::exchange(walk.grads[n.get()], {});
  return {std::move(n), std::move(g)};
}

/// Counts, for every node that `root` reaches, the consumers that will hand in a part.
void Pass::count(Node& root, Walk& walk) {
  std::vector<Node*> stack{&root};
  auto see = [&](const Node& n) {
    check(!n.ran,
          "backward: the graph below {} was already used and freed; run the forward again for a "
          "second backward",
          n.name);
    for (auto& i : n.inputs) {
      if (!i) continue;
      if (i->is_leaf) ++awaited_[i.get()];
      else if (walk.pending[i.get()]++ == 0) stack.push_back(i.get());
    }
  };
  while (!stack.empty()) {
    Node* n = stack.back();
    stack.pop_back();
    see(*n);
    if (n->later) see(*n->later);
  }
}

/// Runs one rule and hands its results to the inputs. An undefined dy (no part of the loss came
/// this way) is passed on as undefined, so that nobody waits for it.
void Pass::run_rule(Node& n, Tensor dy, Walk& walk) {
  Into into = offer(n, walk), given = into;
  Tensors parts(n.inputs.size());
  if (dy.defined()) {
    dy = dy.contiguous();
    ProfileRange range(n.name, n.layer);
    SamplesAtOnce as_recorded(n.samples);
    parts = n.rule(std::move(dy), into);
    check(parts.size() == n.inputs.size(), "{}: the rule returned {} gradients; expected {}",
          n.name, parts.size(), n.inputs.size());
  } else {
    n.seen.clear();  // nothing of it was used
  }
  into.slots_.clear();
  n.drop_rule();  // what only it held is freed before its results are handed on
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (n.inputs[i]) collect(n, i, given.slots_[i], std::exchange(parts[i], {}), walk);
  for (auto& input : n.inputs)
    if (input) handed_in(input, walk);
}

/// Returns for each input the gradient collected so far, for the rule to add into.
Into Pass::offer(const Node& n, Walk& walk) {
  Into into(n.inputs.size());
  for (size_t i = 0; i < n.inputs.size(); ++i) {
    Node* p = n.inputs[i].get();
    if (!p) continue;
    auto& slot = into.slots_[i];
    slot.wanted = true;
    slot.dtype = p->dtype;
    auto same = [&](auto& earlier) { return earlier.get() == p; };
    if (std::any_of(n.inputs.begin(), n.inputs.begin() + int64_t(i), same)) continue;
    auto meta = p->leaf.lock();
    if (p->is_leaf && !meta) {
      slot.wanted = false;  // the leaf has died: nobody can ask for its gradient
    } else if (p->collector) {
      slot.held = p->collector->offer(n);
    } else {
      Tensor& held = meta ? meta->grad : walk.grads[p];
      if (!held.defined()) continue;
      // Adding into it rounds once, adding to it twice: which of the two happens must not depend on
      // other holders of the tensor.
      if (!held.exclusive()) held = clone(held);
      slot.held = {std::exchange(held, {}), Write::add};
    }
  }
  return into;
}

/// Adds `part` to what input `i` has collected; `offered` is what the rule may have written into.
void Pass::collect(const Node& n, size_t i, Into::Slot& offered, Tensor part, Walk& walk) {
  const Node& p = *n.inputs[i];
  check(!part.defined() || part.shape() == p.shape,
        "{}: the rule returned a gradient {} for input {} of shape {}", n.name, part, i, p.shape);
  auto meta = p.leaf.lock();
  if (p.is_leaf && !meta) return;
  if (p.collector) {
    if (part.defined()) p.collector->collect(n, part);
    return;
  }
  Tensor& held = meta ? meta->grad : walk.grads[const_cast<Node*>(&p)];
  Tensor mine = std::exchange(offered.held.to, {});
  bool added = part.defined() && part.is(mine);
  if (mine.defined()) {
    if (!held.defined()) held = std::move(mine);  // put the offer back
    else add_to(held, mine);                      // the same input twice
  }
  if (!part.defined() || added) return;
  part = held.defined() ? part.contiguous() : part.to(p.dtype).contiguous();
  if (held.defined()) return add_to(held, part);
  // Later parts are added to it. A leaf's is its own, no dy that the caller or another leaf holds.
  if (meta && !part.exclusive()) part = clone(part);
  held = std::move(part);
}

void Pass::handed_in(const std::shared_ptr<Node>& input, Walk& walk) {
  if (!input->is_leaf) {
    if (--walk.pending[input.get()] == 0) walk.ready.push(input);
  } else if (--awaited_[input.get()] == 0) {
    awaited_.erase(input.get());
    if (auto meta = input->leaf.lock())
      for (auto& hook : meta->on_grad) hook();
  }
}

void Pass::run_later(Node& n, const Tensor& dy) {
  Walk walk;
  run_rule(n, dy, walk);
}

void Pass::finish() {
  for (auto& f : std::exchange(ends_, {})) f();
  if (later_) later_->pass_ = shared_from_this();
  later_ = nullptr;
}

void Later::run() {
  NoGrad guard;
  while (!jobs_.empty()) {
    auto [node, dy] = std::move(jobs_.front());
    jobs_.pop_front();
    pass_->run_later(*node, dy);
  }
  pass_ = nullptr;
}

void after_backward(std::function<void()> f) {
  check(running != nullptr, "after_backward: no backward is running on this thread");
  running->at_end(std::move(f));
}

}  // namespace autograd

void backward(const Tensor& y, Tensor dy, autograd::Later* later) {
  check(requires_grad(y), "backward: {} was not computed from a tensor that requires a gradient",
        y);
  NoGrad guard;
  if (!dy.defined()) {
    check(y.numel() == 1, "backward: {} needs its gradient given; only one element stands for 1",
          y);
    dy = full(y.shape(), 1, y.dtype(), y.device());
  }
  check(dy.shape() == y.shape() && dy.dtype() == y.dtype() && dy.device() == y.device(),
        "backward: gradient {} for {}; expected the same shape, dtype and device", dy, y);
  using autograd::running;
  Tensor given = dy.detach();
  dy = {};  // if the caller has no handle either, it may be written into
  if (running) return running->run(y.meta()->node, std::move(given));
  auto pass = std::make_shared<autograd::Pass>(later);
  Scoped here(running, pass.get());
  pass->run(y.meta()->node, std::move(given));
  pass->finish();
}

}  // namespace triax
