#pragma once
#include <functional>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "triax/autograd/backward.h"
#include "triax/autograd/node.h"

namespace triax::autograd {

/// One backward pass, with recomputation nested into it and deferred rules taken out of it.
class Pass : public std::enable_shared_from_this<Pass> {
 public:
  explicit Pass(Later* later) : later_(later) {}
  /// Walks the graph below `root`, newest node first.
  void run(const std::shared_ptr<Node>& root, Tensor dy);
  void run_later(Node& n, const Tensor& dy);
  void at_end(std::function<void()> f) { ends_.push_back(std::move(f)); }
  void finish();

 private:
  struct Older {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->order < b->order;
    }
  };
  struct Walk {
    std::unordered_map<Node*, int> pending;  // consumers that have not handed in their part yet
    std::unordered_map<Node*, Tensor> grads;
    std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Older> ready;
  };

  std::pair<std::shared_ptr<Node>, Tensor> take(Walk& walk);
  void count(Node& root, Walk& walk);
  void run_rule(Node& n, Tensor dy, Walk& walk);
  Into offer(const Node& n, Walk& walk);
  void collect(const Node& n, size_t i, Into::Slot& offered, Tensor part, Walk& walk);
  void handed_in(const std::shared_ptr<Node>& input, Walk& walk);

  Later* later_;
  std::vector<std::function<void()>> ends_;
  // Counts over the whole pass, not over one walk: a weight used inside and outside a recomputed
  // part is complete when all uses are done.
  std::unordered_map<Node*, int> awaited_;
};

}  // namespace triax::autograd
