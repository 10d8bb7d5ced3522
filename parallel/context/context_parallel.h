#pragma once
#include <cmath>
#include <memory>
#include <vector>

#include "triax/core/numbers/fixed_point.h"
#include "triax/nn/batch.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// Returns where the `mine` rows of a sample lie that a rank of `ranks` has: chunks `rank` and 2
/// `ranks` - 1 - `rank` of 2 `ranks` equal ones, so that causal attention is equal work for all
/// (zigzag; Llama 3, arXiv 2407.21783, section 3.3.2). Throws Error 78 unless `mine` is even.
std::vector<nn::Span> zigzag(int ranks, int rank, int64_t mine);

/// Returns what a rank of `ranks` has of `batch`: its rows, of dim 1 of input, target and extra,
/// which must be equally long. Throws Error 78 if they are not, and for a length that 2 `ranks` do
/// not divide.
nn::Batch rows_of_rank(const nn::Batch& batch, int ranks, int rank);

/// The ways to make attention over the ranks of cp.
enum class ContextForm {
  ring,   ///< keys and values pass round (Liu et al., "Ring Attention", 2023)
  heads,  ///< rows for heads and back (Jacobs et al., "DeepSpeed Ulysses", 2023)
  gather  ///< keys and values of all ranks at once, in order of position (Llama 3)
};

/// The equal parts of a rank's rows of a sample whose gradients of keys and values `gather` sums in
/// fixed point, for bits that do not depend on cp.
struct ExactRows {
  int64_t parts = 0;  ///< 0: it sums as it comes
  std::shared_ptr<FixedPoint> grid = std::make_shared<FixedPoint>();

  /// Sets the fixed point of a backward whose gradients are multiplied by `seed`, with so many
  /// parts over all ranks: a part is below 2^16 / parts seeds.
  void set_seed(double seed, int64_t all) const {
    if (parts > 0) *grid = FixedPoint::of(std::scalbn(1., std::ilogb(seed) - 36), double(all));
  }
};

/// The rows of every sample, cut over the ranks of an axis.
class ContextParallel final : public nn::RowRanks {
 public:
  /// `cp` must outlive it.
  ContextParallel(Communicator& cp, ContextForm form, const ExactRows& exact = {})
      : cp_(cp), form_(form), exact_(exact) {}
  int64_t count() const override { return cp_.size(); }
  std::vector<nn::Span> spans(int64_t mine) const override {
    return zigzag(cp_.size(), cp_.rank(), mine);
  }
  void sum(const Tensor& x) const override { cp_.all_reduce(x).wait(); }
  /// Throws Error 78 for heads that `heads` cannot share out, and for a window with `ring`.
  Tensor attend(const Qkv& in, const AttentionShape& shape,
                const random::Mask& mask) const override;

 private:
  Communicator& cp_;
  ContextForm form_;
  ExactRows exact_;
};

}  // namespace triax::parallel
