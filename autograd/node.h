#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/backend.h"
#include "core/tensor.h"

namespace triax::autograd {

/// Where a rule puts the gradient of one input: `set` on fresh memory, or `add` onto what others
/// have already collected there.
struct Target {
  Tensor grad;
  Write write;
};
/// For a gradient that is one product: how Matmul is to round it, if at all.
struct ProductTarget : Target {
  const FixedPoint* rounding = nullptr;
};

/// How a gradient is added up in f64, so that the order of its parts does not matter.
struct FixedSums {
  std::shared_ptr<const FixedPoint> rounding = {};  ///< of a part, as it says then; null: no
  int64_t chains = 1;  ///< equal parts of a sample's rows of dy: each is rounded by itself
  bool must = false;   ///< the other chains are on other ranks: what cannot cut rows throws
};

/// What a rule is offered: per input, the gradient already collected there. A rule may add into it
/// and return it, which saves a tensor and a pass; a rule that ignores the offer is still right.
class Into {
 public:
  explicit Into(size_t inputs) : slots_(inputs) {}
  /// Does input `i` want a gradient at all?
  bool wanted(size_t i) const { return slots_[i].wanted; }
  /// In which dtype it is collected: what a rule sums in it is not rounded on the way there.
  DType dtype(size_t i) const { return slots_[i].dtype; }
  /// Where to put the gradient of input `i`: the collected one if it may be changed, is of `dtype`
  /// and not in fixed point, else fresh memory. Return `.grad` from the rule.
  Target at(size_t i, const Shape& shape, DType dtype, Device device) const;
  Target at(size_t i, const Tensor& like) const {
    return at(i, like.shape(), like.dtype(), like.device());
  }
  /// The same for Matmul, which can round what it adds to sums in fixed point: then `grad` is of
  /// f64.
  ProductTarget product(size_t i, const Shape& shape, DType dtype, Device device) const;
  /// For a rule of leaves alone: the rows of x, which has as many as dy, whose part of the gradient
  /// is asked for. Mostly all of them; of leaves that are summed in fixed point the engine asks for
  /// the part of each sample and chain in turn, if the rule calls this for all that has rows.
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
  FixedSums sums_;                // of leaves
  bool cuts_ = false;             // all inputs are leaves
  int64_t samples_ = 1;           // dy's rows are those of so many, one behind the other
  int64_t part_ = 0, parts_ = 0;  // which of how many rows() gives; 0: none
};

/// dL/dy -> one gradient per input; undefined = zero. dy is contiguous, of y's shape and dtype (or
/// that of collect_gradient). A rule that takes it by value is its owner: mostly nobody else holds
/// it, and it ends with the rule.
using Rule = std::function<Tensors(Tensor dy, Into& into)>;

struct Meta;

/// What an op has read or made, to tell in backward whether its values are still those.
struct Seen {
  explicit Seen(const Tensor& x);
  std::weak_ptr<const Storage> storage;
  std::weak_ptr<const void> handle;
  uint64_t writes;  // of the storage, when the op was recorded

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
  /// The rule has run and goes, with what it has kept; throws if that was overwritten since.
  void drop_rule();

  const char* name;
  const char* layer;  // that recorded it, in a profile; else null
  uint64_t order;     // of creation; a pass runs newest first
  int64_t samples;    // of SamplesAtOnce
  Shape shape;        // of the output
  DType dtype;  // of the gradient: an op's output's (but for collect_gradient), a leaf's sums'
  std::vector<std::shared_ptr<Node>> inputs;  // producers of the inputs; null: no gradient wanted
  Rule rule;
  std::vector<Seen> seen = {};       // inputs and output
  std::shared_ptr<Node> later = {};  // same dy, the part of the rule that only leaves wait for
  std::weak_ptr<Meta> leaf = {};     // set on the node of a leaf
  bool is_leaf = false;
  bool ran = false;  // the rule is gone
};

/// What a tensor with a gradient carries.
struct Meta {
  std::shared_ptr<Node> node;
  Tensor gelu_of = {};  // what an op's output is the gelu of; its history is the node's first input
  // Leaves only:
  Tensor grad;
  bool in_place = false;  // grad is a view somebody else owns (a bucket): always write into it
  bool fresh = false;     // in_place: its values are left over, the first write sets
  FixedSums fixed = {};   // in_place
  int64_t parts = 0;      // fixed: since take_parts()
  std::vector<std::function<void()>> on_grad;
};

/// Nodes alive in this process: tests assert that a step leaves none behind.
int64_t live_nodes();

/// Is recording on (on this thread)?
bool recording();

/// While one lives, what is recorded on this thread has the rows of `count` samples, one sample
/// behind the other: where gradients of leaves are summed in fixed point, each sample's part is
/// rounded by itself, as if each had been recorded by itself. A rule, whenever it runs, sees the
/// count under which its op was recorded.
class SamplesAtOnce {
 public:
  explicit SamplesAtOnce(int64_t count);
  ~SamplesAtOnce();
  SamplesAtOnce(const SamplesAtOnce&) = delete;
  SamplesAtOnce& operator=(const SamplesAtOnce&) = delete;

 private:
  int64_t outer_;
};
/// The count of the innermost that lives on this thread; 1: there is none.
int64_t samples_at_once();

}  // namespace triax::autograd
