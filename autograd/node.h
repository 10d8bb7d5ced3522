#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "triax/core/shared/sums.h"
#include "triax/core/tensor.h"

namespace triax::autograd {

/// The place where a rule puts the gradient of one input: `set` on fresh memory, or `add` onto what
/// others have already collected there.
struct Target {
  Tensor grad;
  Write write;
  operator Sums() const { return {grad, write}; }
};

/// Offers a rule, per input, the gradient already collected there. A rule may add into it and
/// return it, which saves a tensor and a pass; a rule that ignores the offer is still right.
class Into {
 public:
  explicit Into(size_t inputs) : slots_(inputs) {}
  /// True if input `i` wants a gradient at all.
  bool wanted(size_t i) const { return slots_[i].wanted; }
  /// Returns the dtype in which it is collected: sums made in this dtype are not rounded again.
  DType dtype(size_t i) const { return slots_[i].dtype; }
  /// Returns where to put the gradient of input `i`: the collected one if it may be changed and is
  /// of `dtype`, else fresh memory. Return `.grad` from the rule.
  Target at(size_t i, const Shape& shape, DType dtype, Device device) const;
  Target at(size_t i, const Tensor& like) const {
    return at(i, like.shape(), like.dtype(), like.device());
  }
  /// Returns what at() does for a gradient that is a sum over the rows of dy, or over its features:
  /// for a kernel that takes Sums, which may be on a grid. Its `to`, which the rule returns, is
  /// undefined if no gradient is wanted.
  Sums sums(size_t i, const Shape& shape, DType dtype, Device device,
            Sums::Over over = Sums::Over::rows) const;

 private:
  friend class Pass;
  struct Slot {
    bool wanted = false;
    DType dtype = DType::f32;
    Sums held = {};
  };
  std::vector<Slot> slots_;
};

/// Maps dL/dy to one gradient per input; undefined = zero. dy is contiguous, of y's shape and dtype
/// (or that of collect_gradient). A rule that takes it by value owns it: mostly nobody else holds
/// it, and it is freed when the rule returns.
using Rule = std::function<Tensors(Tensor dy, Into& into)>;

struct Meta;

/// A tensor that an op has read or made, to tell in backward whether its values were overwritten.
struct Seen {
  explicit Seen(const Tensor& x);
  std::weak_ptr<const Storage> storage;
  std::weak_ptr<const void> handle;
  uint64_t writes;  // to the storage, when the op was recorded

  bool changed() const;  // in place: by copy_, fill_ or a collective
  long holders() const { return storage.use_count() + handle.use_count(); }
};

struct Node;

/// Collects a gradient in the engine's place: that of a leaf in a bucket, or of an op's output
/// whose sum goes on over other ranks.
class Collector {
 public:
  virtual ~Collector() = default;
  /// Returns where the rule of `n` may put its part, or nowhere. Many offers are never taken.
  virtual Sums offer(const Node& n) = 0;
  /// Takes its part: `.to` of the offer, to which it has been added, or another tensor.
  virtual void collect(const Node& n, const Tensor& part) = 0;
  /// Returns all that has come, for the rule of the op that made it; undefined if nothing has.
  virtual Tensor take() { return {}; }
};

/// Collects in a view of a larger buffer.
class GradientView : public Collector {
 public:
  explicit GradientView(const Tensor& view) : view_(view) {}
  Sums offer(const Node& n) override;
  void collect(const Node& n, const Tensor& part) override;
  /// Says that its values are left over from before: the first write sets.
  void set_fresh() { fresh_ = true; }
  bool fresh() const { return fresh_; }
  const Tensor& view() const { return view_; }

 protected:
  Write write() const { return fresh_ ? Write::set : Write::add; }
  void written() { fresh_ = false; }

 private:
  Tensor view_;
  bool fresh_ = true;
};

/// One recorded operation, or (without a rule) a leaf.
struct Node : Immovable {
  Node(const char* op, const Tensor& y, std::vector<std::shared_ptr<Node>> producers,
       Rule backward);
  ~Node();
  /// Drops the rule, which has run, with what it kept; throws if that was overwritten since.
  void drop_rule();

  const char* name;
  const char* layer;  // the layer that recorded it, in a profile; else null
  uint64_t order;     // rank by creation; a pass runs newest first
  int64_t samples;    // samples_at_once() when it was recorded
  Shape shape;        // the output's shape
  DType dtype;        // the gradient's: an op's output's (or collect_gradient's), a leaf's sums'
  std::vector<std::shared_ptr<Node>> inputs;  // producers of the inputs; null: no gradient wanted
  Rule rule;
  std::vector<Seen> seen = {};                // the inputs and the output
  std::shared_ptr<Node> later = {};           // the rule's part that only leaves wait for; takes dy
  std::weak_ptr<Meta> leaf = {};              // set on the node of a leaf
  std::shared_ptr<Collector> collector = {};  // null: the engine collects the gradient
  bool is_leaf = false;
  bool early = false;  // run_early()
  bool ran = false;    // the rule was dropped
};

/// The gradient state of a tensor.
struct Meta {
  std::shared_ptr<Node> node;
  Tensor gelu_of = {};  // x of an output gelu(x); its history is the node's first input
  // Leaves only:
  Tensor grad;
  std::vector<std::function<void()>> on_grad;
};

/// Returns the number of nodes alive in this process: tests assert that a step leaves none behind.
int64_t live_nodes();

/// True if recording is on, on this thread.
bool recording();

/// While it lives, ops recorded on this thread have the rows of `count` samples, one sample after
/// the other: a Collector may ask for each sample's part by itself, as if it had been recorded
/// alone. A rule, whenever it runs, sees the count under which its op was recorded.
class SamplesAtOnce : Scoped<int64_t> {
 public:
  explicit SamplesAtOnce(int64_t count);
};
/// Returns the count of the innermost one that lives on this thread; 1 if there is none.
int64_t samples_at_once();

}  // namespace triax::autograd
