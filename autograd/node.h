#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/tensor.h"

namespace triax::autograd {

/// The place where a rule puts the gradient of one input: `set` on fresh memory, or `add` onto what
/// others have already collected there.
struct Target {
  Tensor grad;
  Write write;
};
/// A Target for a gradient that is one product, with the rounding of Matmul; null: none.
struct ProductTarget : Target {
  const FixedPoint* rounding = nullptr;
};

/// Says how a gradient is summed in f64, so that the order of its parts does not matter.
struct FixedSums {
  std::shared_ptr<const FixedPoint> rounding = {};  ///< of each part, read at that time; null: no
  int64_t chains = 1;  ///< equal parts of a sample's rows of dy, each rounded separately
  bool must = false;   ///< other chains are on other ranks: a rule that cannot cut rows throws
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
  /// Returns where to put the gradient of input `i`: the collected one if it may be changed, is of
  /// `dtype` and not in fixed point, else fresh memory. Return `.grad` from the rule.
  Target at(size_t i, const Shape& shape, DType dtype, Device device) const;
  Target at(size_t i, const Tensor& like) const {
    return at(i, like.shape(), like.dtype(), like.device());
  }
  /// Returns the place for a gradient that Matmul makes. Unlike at(), it can be a sum in fixed
  /// point: then `grad` is f64 and `rounding` is set.
  ProductTarget product(size_t i, const Shape& shape, DType dtype, Device device) const;
  /// Returns the rows of x (it has as many as dy) whose part of the gradient is asked for: mostly
  /// all. For leaves summed in fixed point the engine asks for each sample and chain in turn. Only
  /// for rules of leaves, which must then call this for every tensor that has rows.
  Tensor rows(const Tensor& x);

 private:
  friend class Pass;
  bool in_parts() const { return cuts_ && samples_ * sums_.chains > 1; }
  bool next(const char* op);
  struct Slot {
    bool wanted = false;
    DType dtype = DType::f32;
    Tensor held;
    Write write = Write::add;
    std::shared_ptr<const FixedPoint> rounding = {};
  };
  std::vector<Slot> slots_;
  FixedSums sums_;                // how gradients of leaves are summed
  bool cuts_ = false;             // all inputs are leaves
  int64_t samples_ = 1;           // dy has the rows of this many samples, one after the other
  int64_t part_ = 0, parts_ = 0;  // rows() returns part_ of parts_; 0: it was not called
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

/// One recorded operation, or (without a rule) a leaf.
struct Node {
  Node(const char* op, const Tensor& y, std::vector<std::shared_ptr<Node>> producers,
       Rule backward);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
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
  std::vector<Seen> seen = {};       // the inputs and the output
  std::shared_ptr<Node> later = {};  // the rule's part that only leaves wait for; takes dy
  std::weak_ptr<Meta> leaf = {};     // set on the node of a leaf
  bool is_leaf = false;
  bool ran = false;  // the rule was dropped
};

/// The gradient state of a tensor.
struct Meta {
  std::shared_ptr<Node> node;
  Tensor gelu_of = {};  // x of an output gelu(x); its history is the node's first input
  // Leaves only:
  Tensor grad;
  bool in_place = false;  // grad is a view somebody else owns (a bucket): always write into it
  bool fresh = false;     // in_place: its values are left over from before, the first write sets
  FixedSums fixed = {};   // in_place: how it is summed
  int64_t parts = 0;      // fixed: parts added since take_parts()
  std::vector<std::function<void()>> on_grad;
};

/// Returns the number of nodes alive in this process: tests assert that a step leaves none behind.
int64_t live_nodes();

/// True if recording is on, on this thread.
bool recording();

/// While it lives, ops recorded on this thread have the rows of `count` samples, one sample after
/// the other. Gradients of leaves that are summed in fixed point then round each sample's part
/// separately, as if it had been recorded alone. A rule, whenever it runs, sees the count under
/// which its op was recorded.
class SamplesAtOnce {
 public:
  explicit SamplesAtOnce(int64_t count);
  ~SamplesAtOnce();
  SamplesAtOnce(const SamplesAtOnce&) = delete;
  SamplesAtOnce& operator=(const SamplesAtOnce&) = delete;

 private:
  int64_t outer_;
};
/// Returns the count of the innermost one that lives on this thread; 1 if there is none.
int64_t samples_at_once();

}  // namespace triax::autograd
