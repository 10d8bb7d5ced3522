#pragma once
#include "triax/autograd/ops.h"
#include "triax/core/check.h"
#include "triax/nn/batch.h"
#include "triax/nn/embedding.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

struct VocabularyOptions {
  double std = 0.02;  ///< of the initial table
  bool tied = false;  ///< `operator()` is used by the first layer and `logits` by the last
};

/// A table [vocabulary, width] whose rows are split over the ranks, used to look tokens up and, if
/// the head is tied to it, as the weight of the logits (Press and Wolf 2017). The vocabulary may
/// have any size: it is padded to a multiple of the ranks, and padding takes part in nothing.
class VocabularyEmbedding : public nn::Module {
 public:
  VocabularyEmbedding(int64_t vocabulary, int64_t width, const TensorParallel& tp,
                      const VocabularyOptions& o = {})
      : tp_(tp),
        slice_{.first = tp.vocabulary(vocabulary).begin, .all = vocabulary},
        table_(parameter({.name = "table",
                          .full = {vocabulary, width},
                          .init = {.std = o.std},
                          .shard = tp.vocabulary(vocabulary),
                          .decay = true,
                          .table = true,
                          .tied = o.tied})) {}

  /// Looks up ids [all rows], of the whole vocabulary -> [rows, width] as outside.
  Tensor operator()(const Tensor& ids) const {
    return tp_.leave_one(embedding(ids, table_, slice_));
  }
  /// Returns, of x as outside [rows, width], this rank's slice of the logits [all rows, slice].
  Tensor logits(const Tensor& x) const {
    return tp_.through(
        x, [&](const Tensor& all) { return linear(all, table_); }, TensorParallel::Cut::whole);
  }
  /// Returns the cross-entropy of these logits, alike on all ranks; targets [all rows], of the
  /// whole vocabulary. As triax::cross_entropy otherwise, whose `slice` and `combine` are set here.
  Tensor cross_entropy(Tensor logits, const Tensor& targets, CrossEntropyOptions o = {}) const {
    o.slice = slice_;
    o.parts = tp_.slices_here();
    if (tp_.size() * o.parts > 1)
      o.combine = [tp = tp_](const Tensor& stats) { return tp.combine(stats); };
    return triax::cross_entropy(std::move(logits), targets, o);
  }
  /// Returns a last layer's result for x as outside [rows, width]: the sum of the cross-entropy
  /// over all of the batch's targets, as Batch::loss has it, one element, or one of each of its
  /// `row_parts`; without target the whole logits [rows, vocabulary].
  Tensor loss(const Tensor& x, const nn::Batch& batch) const {
    Tensor mine = logits(x);
    if (!batch.target.defined()) return whole(mine);
    CrossEntropyOptions o = batch.loss;
    o.reduction = CrossEntropyOptions::Reduction::sum;
    Tensor targets = batch.target.view({batch.target.numel()});
    if (batch.row_parts == 1) return cross_entropy(std::move(mine), targets, o);
    int64_t rows = targets.numel() / batch.row_parts;
    check_input(
        rows * batch.row_parts == targets.numel(), Exit::config,
        "bitwise: {} targets in {} row parts; expected a multiple\n  Take a --row-parts that "
        "divides the length of a sample.",
        targets.numel(), batch.row_parts);
    Tensors losses = split(mine, 0, std::vector<int64_t>(size_t(batch.row_parts), rows));
    for (int64_t i = 0; i < batch.row_parts; ++i) {
      Tensor part = targets.narrow(0, i * rows, rows);
      losses[size_t(i)] = view(cross_entropy(losses[size_t(i)], part, o), {1});
    }
    return concat(losses, 0);
  }
  /// Returns the logits of all ranks, side by side without padding: [rows, vocabulary]. For
  /// sampling: no gradient passes.
  Tensor whole(const Tensor& logits) const {
    return join_columns(tp_, logits).narrow(1, 0, slice_.all);
  }

 private:
  TensorParallel tp_;
  VocabularySlice slice_;
  nn::Parameter& table_;
};

/// The first layer of a language model: rows of a table for ids of any shape.
struct TokenLayer : VocabularyEmbedding {
  using VocabularyEmbedding::VocabularyEmbedding;
  Tensor operator()(const nn::Batch& batch) const {
    return VocabularyEmbedding::operator()(batch.input);
  }
};

/// The last layer of a classifier, with the classes split over the ranks. x [rows, width].
struct ClassHead : VocabularyEmbedding {
  using VocabularyEmbedding::VocabularyEmbedding;
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return loss(nn::predicted_rows(x, batch), batch);
  }
};

}  // namespace triax::parallel
