#pragma once
#include <functional>
#include <map>
#include <string>

#include "triax/autograd/backward.h"
#include "triax/nn/parameter.h"
#include "triax/parallel/comm/communicator.h"
#include "triax/parallel/tensor/pieces.h"
#include "triax/parallel/tensor/slices.h"

namespace triax::parallel {

struct TensorParallelOptions {
  /// Each rank holds only its token rows outside `enter` and `leave` (sequence parallelism:
  /// Korthikanti et al., "Reducing activation recomputation", 2022, section 4.2.2).
  bool sequence = false;
  Slices slices = {};
  /// Rows of a split layer are cut into at most this many pieces, as evenly as they divide: the
  /// transfer of one runs beside the products of the others (as in Wang et al., "Overlap
  /// communication with dependent computation via decomposition", 2023). Not with slices.
  int pieces = 1;
  /// The ranks along other axes of the mesh, by name, for layers that share something over them.
  std::map<std::string, Communicator*, std::less<>> others = {};
};

/// A stretch of a model whose matrices are split over the ranks of an axis (Shoeybi et al.,
/// "Megatron-LM", 2019, section 3). Between `enter` and `leave` each rank works on all tokens with
/// its slice of the features; outside, all ranks work alike on the same rows or, with `sequence`,
/// on rows of their own. With one rank everything here is the identity. Cheap to copy.
class TensorParallel {
 public:
  /// Maps rows to rows, one by one.
  using Product = std::function<Tensor(const Tensor& rows)>;
  enum class Cut { pieces, whole };

  /// `tp` must outlive it.
  explicit TensorParallel(Communicator& tp, const TensorParallelOptions& options = {})
      : tp_(&tp),
        sequence_(options.sequence && tp.size() > 1),
        slices_(options.slices),
        pieces_{sequence_ ? tp.size() : 1, options.pieces},
        others_(options.others) {}

  int rank() const { return tp_->rank(); }
  int size() const { return tp_->size(); }
  /// Returns the communicator of these ranks, for collectives of a layer's own.
  Communicator& comm() const { return *tp_; }
  /// Returns the stretch over the ranks of another axis of features, for layers that are split over
  /// them and that the ranks here hold alike; it has no sequence parallelism, slices or pieces.
  TensorParallel on(std::string_view axis) const;
  /// Returns the communicator of another axis of the mesh; null where that has one rank.
  Communicator* other(std::string_view axis) const {
    auto found = others_.find(axis);
    return found == others_.end() || found->second->size() == 1 ? nullptr : found->second;
  }
  bool sequence() const { return sequence_; }
  bool sliced() const { return slices_.count > 1; }
  /// True if a split layer here is the layer that it splits: on one rank, which adds no slices.
  bool undivided() const { return size() == 1 && !sliced(); }
  /// Returns the slices of this rank.
  int slices_here() const { return sliced() ? slices_.count / size() : 1; }

  // -- The shard of a parameter that this rank holds.
  /// Returns an equal slice of a dim of `length`, which never cuts a `unit`: elements that belong
  /// together, such as those of an attention head. Throws Error 78 with the valid tp unless every
  /// rank gets equally many units.
  nn::Shard shard(int dim, int64_t length, int64_t unit = 1) const;
  /// Returns an equal slice of a vocabulary's rows, padded where the ranks do not divide it.
  nn::Shard vocabulary(int64_t rows) const;
  /// Returns all of it, used outside the stretch.
  nn::Shard whole() const;
  /// Returns all of it, used where all ranks have all rows, alike, also with `sequence`: behind
  /// gather_rows or before scatter_rows. Gradients are not summed.
  nn::Shard whole_never_summed() const;
  /// Returns all of it, used inside, where each rank has its own features (the gamma of a norm over
  /// each attention head): gradients are summed. Outside they would count once for each rank.
  nn::Shard whole_always_summed() const;

  // -- The way in and out. x [rows, width]; each is its counterpart's backward.
  // Where features are sliced, only products may use what `enter` returns, and `leave`, which adds
  // parts that are rounded already, throws Error 78. In fp16, sums over the ranks are made in fp32
  // and rounded once, as in one rank's product: else a part could overflow where the sum does not.
  /// Gathers this rank's rows -> all rows; backward sums the ranks' parts of the gradient.
  Tensor enter(const Tensor& x) const;
  /// Returns product(enter(x)), for a product that makes each row of one row, and keeps its input
  /// for its weight's gradient. With `sequence` it keeps this rank's rows, and backward gathers the
  /// others again. Backward sums over the ranks beside the weight's gradient, and beside the other
  /// pieces; what is wide, such as logits, is better not joined from pieces.
  Tensor through(const Tensor& x, const Product& product, Cut cut = Cut::pieces) const;
  /// Sums the ranks' parts -> this rank's rows of the sum. Moved in, x gives its memory.
  Tensor leave(Tensor x) const;
  /// Sums parts that are zero on all ranks but one, element by element.
  Tensor leave_one(Tensor x) const;
  /// Returns leave(linear(x, weight)) + bias, if there is one, without rounding the parts before.
  Tensor leave_product(const Tensor& x, const Tensor& weight, const Tensor& bias) const;
  /// Takes this rank's share of rows that all ranks have alike. Throws Error 78 if it is uneven.
  Tensor scatter_rows(const Tensor& x) const;
  /// Gathers this rank's rows -> all rows, used alike on all ranks.
  Tensor gather_rows(const Tensor& x) const;

  /// Returns the packing for recompute: of an input that all ranks have alike each keeps an equal
  /// share (ZeRO-R's partitioned activations: Rajbhandari et al., "ZeRO", 2020, section 6.1),
  /// gathered in backward. Throws Error 78 unless the ranks divide the elements. With `sequence`
  /// inputs are shared out already: then, and with one rank, nothing is packed.
  Packing split() const;

  /// Returns how many of `all` rows this rank has outside. Throws Error 78 if they are uneven.
  int64_t rows(int64_t all) const;
  /// Returns the number of samples of which this rank has rows, a share of each, one after another:
  /// more than 1 with `sequence` in a layer that sees several at once (autograd::SamplesAtOnce).
  int64_t samples_apart() const { return sequence_ ? autograd::samples_at_once() : 1; }
  /// Returns the index of the first of this rank's `mine` rows among all rows. Throws Error 78
  /// where it has rows of several samples apart.
  int64_t first_row(int64_t mine) const;

  /// Combines each rank's cross-entropy statistics [slices, rows, 4] into those of the whole
  /// vocabulary [rows, 4] (CrossEntropyOptions::combine).
  Tensor combine(const Tensor& stats) const;

 private:
  Tensor leave_parts(Tensor parts, const Tensor& bias, DType dtype) const;
  Tensor leave_pieces(const Tensor& x, const Product& product, const Tensor& bias) const;

  Communicator* tp_;
  bool sequence_;
  Slices slices_;
  Pieces pieces_;
  std::map<std::string, Communicator*, std::less<>> others_;
  std::string axis_ = "tp";
  std::map<std::string, nn::Along, std::less<>> along_ = {};  // how other axes hold what is here
};

/// Returns the columns [rows, columns] of all ranks side by side; no gradient passes.
Tensor join_columns(const TensorParallel& tp, const Tensor& x);

}  // namespace triax::parallel
