#pragma once
#include <functional>

#include "autograd/backward.h"
#include "nn/parameter.h"
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// Slices of split features, for bits that do not depend on the number of ranks: each rank has
/// equally many. A sum over all features is made of a product for each slice, in fixed point.
struct Slices {
  static constexpr int most = 256;
  int count = 1;  ///< over all ranks; 1: nothing is sliced, ranks add what they have
  /// For gradients of activations: see set_seed().
  std::shared_ptr<FixedPoint> backward = std::make_shared<FixedPoint>();

  /// For activations: what a slice brings is below 2^20 / count.
  FixedPoint forward() const { return FixedPoint::of(0x1p-32, count); }
  /// Before each backward, whose gradients are multiplied by `seed`: what a slice brings is below
  /// 2^16 / count seeds.
  void set_seed(double seed);
};

struct TensorParallelOptions {
  /// Outside `enter` and `leave`, hold only this rank's token rows (sequence parallelism:
  /// Korthikanti et al., "Reducing activation recomputation", 2022, section 4.2.2).
  bool sequence = false;
  Slices slices = {};
};

/// A stretch of a model whose matrices are split over the ranks of an axis (Shoeybi et al.,
/// "Megatron-LM", 2019, section 3). Between `enter` and `leave` each rank works on all tokens with
/// its slice of the features; outside, all ranks work alike on the same rows or, with `sequence`,
/// on rows of their own. With one rank everything here is the identity. Cheap to copy.
class TensorParallel {
 public:
  /// `tp` must outlive it.
  explicit TensorParallel(Communicator& tp, const TensorParallelOptions& options = {})
      : tp_(&tp), sequence_(options.sequence && tp.size() > 1), slices_(options.slices) {}

  int rank() const { return tp_->rank(); }
  int size() const { return tp_->size(); }
  /// Of these ranks, for collectives of a layer's own.
  Communicator& comm() const { return *tp_; }
  bool sequence() const { return sequence_; }
  bool sliced() const { return slices_.count > 1; }
  /// Of this rank.
  int slices_here() const { return sliced() ? slices_.count / size() : 1; }

  // -- What this rank holds of a parameter.
  /// An equal slice of a dim of `length`, which never cuts a `unit`: as many elements as belong
  /// together, such as those of an attention head. Throws Error 78 with the valid tp unless every
  /// rank gets equally many units.
  nn::Shard shard(int dim, int64_t length, int64_t unit = 1) const;
  /// An equal slice of the rows of a vocabulary, padded where the ranks do not divide it.
  nn::Shard vocabulary(int64_t rows) const;
  /// All of it, used outside the stretch.
  nn::Shard whole() const;
  /// All of it, used where all ranks have all rows, alike, also with `sequence`: behind gather_rows
  /// or before scatter_rows. Gradients are not summed.
  nn::Shard whole_alike() const;
  /// All of it, used inside, where each rank has features of its own (the gamma of a norm over each
  /// attention head): gradients are summed. Outside they would count once for each rank.
  nn::Shard whole_inside() const;

  // -- The way in and out. x [rows, width]; each is its counterpart's backward.
  // Where features are sliced, those that sum them throw Error 78: the products below do it.
  // In fp16, sums over the ranks are made in fp32 and rounded once, as in one rank's product: else
  // a part could overflow where the sum does not.
  /// Rows of this rank -> all rows; the parts that ranks have of the gradient are summed.
  Tensor enter(const Tensor& x) const;
  /// product(enter(x)), for a product that keeps its input for the gradient of its weight. With
  /// `sequence` it keeps this rank's rows, and backward gathers the others again.
  Tensor through(const Tensor& x, const std::function<Tensor(const Tensor&)>& product) const;
  /// Parts of a sum -> the sum, its rows of this rank. Moved in, x gives its memory.
  Tensor leave(Tensor x) const;
  /// The same of parts that are zero on all ranks but one, element by element.
  Tensor leave_one(Tensor x) const;
  /// leave(linear(x, weight)) + bias, if there is one, of parts that are not rounded before.
  Tensor leave_product(const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  /// Where features are sliced (`slices` > 1): x w^T + b of this rank's rows of w, as in
  /// ColumnLinear, and the sum over all ranks of x w^T of its columns, as in RowLinear.
  Tensor product_in(const Tensor& x, const Tensor& weight, const Tensor& bias = {}) const;
  Tensor product_out(const Tensor& x, const Tensor& weight) const;
  /// All rows, alike on all ranks -> rows of this rank. Throws Error 78 unless ranks divide them.
  Tensor scatter_rows(const Tensor& x) const;
  /// Rows of this rank -> all rows, used alike on all ranks.
  Tensor gather_rows(const Tensor& x) const;

  /// For recompute: of an input that all ranks have alike each keeps an equal share of the elements
  /// (ZeRO-R's partitioned activations: Rajbhandari et al., "ZeRO", 2020, section 6.1), gathered in
  /// backward. Throws Error 78 unless the ranks divide them. With `sequence` inputs are not alike
  /// and shared out already: then, and with one rank, nothing is packed.
  Packing split() const;

  /// The columns [rows, columns] of all ranks side by side; no gradient passes.
  Tensor join_columns(const Tensor& x) const;

  /// How many of `all` rows this rank has outside. Throws Error 78 unless the ranks divide them.
  int64_t rows(int64_t all) const;
  /// Of how many samples this rank has rows, a share of each, one share behind the other: more than
  /// 1 with `sequence` in a layer that sees several samples at once (autograd::SamplesAtOnce).
  int64_t samples_apart() const;
  /// Index of the first of this rank's `mine` rows among all rows. Throws Error 78 where it has
  /// rows of several samples apart.
  int64_t first_row(int64_t mine) const;

  /// Makes of each rank's cross-entropy statistics [slices, rows, 4] those of the whole vocabulary
  /// [rows, 4] (CrossEntropyOptions::combine).
  Tensor combine(const Tensor& stats) const;

 private:
  void check_whole(const char* what) const;
  Tensor leave_parts(Tensor parts, const Tensor& bias, DType dtype) const;
  Tensor over_ranks(Tensor parts, DType dtype) const;
  Tensor summed(const Tensor& x) const;
  Tensor joined(const Tensor& x) const;
  Tensor gathered(const Tensor& x) const;
  Tensor sum_scattered(const Tensor& x) const;
  Tensor mine(const Tensor& x) const;

  Communicator* tp_;
  bool sequence_;
  Slices slices_;
};

}  // namespace triax::parallel
