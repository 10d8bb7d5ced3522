#pragma once
#include <algorithm>

#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/nn/embedding.h"
#include "triax/nn/linear.h"
#include "triax/parallel/parity/parity.h"

/// @file Models whose samples are many rows, to be trained with equal bits.
namespace triax::parallel {

inline TrainOptions bitwise_options(const MeshShape& mesh) {
  auto o = test::tiny_options(mesh);
  o.steps = 10;
  o.step.bitwise = true;
  o.step.micro_batch = 1, o.step.global_batch = 24;
  return o;
}

/// Samples of so many rows. Outside of split layers it has a product, a table, biases and norms.
template <int64_t rows> struct RowsOf : nn::Module {
  explicit RowsOf(const TensorParallel& ranks)
      : tp(ranks),
        up(child<nn::Linear>("up", values / rows, 16,
                             nn::LinearOptions{.std = 0.3, .shard = ranks.whole()})),
        places(child<nn::Embedding>("places", rows, 16,
                                    nn::EmbeddingOptions{.std = 0.3, .shard = ranks.whole()})) {}
  Tensor operator()(const Tensor& x) const {
    Tensors copies;  // of the 16 features
    for (int64_t i = 1; i <= values / 16; ++i) copies.push_back(x * (1. / double(i)));
    Tensor mine = tp.scatter_rows(view(concat(copies, 1), {-1, values / rows}));
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < mine.size(0); ++i)
      ids.push_back(int32_t((tp.first_row(mine.size(0)) + i) % rows));
    Tensor at = empty({mine.size(0)}, i32, x.device());
    copy_(at, from_host(ids, at.shape(), cpu));
    return up(mine) + places(at);
  }
  static constexpr int64_t values = std::max<int64_t>(32, rows);  // of a sample
  TensorParallel tp;
  nn::Linear& up;
  nn::Embedding& places;
};
/// Counts 16 of a sample's rows if it has more than 32: its gradient must be below the limit.
template <int64_t rows> struct RowHead : ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    nn::Batch each = batch;
    int64_t n = batch.input.size(0);
    constexpr int64_t counted = rows > 32 ? 16 : rows;
    if (each.target.defined()) {
      each.target = full({n, rows}, -1, i32, x.device());
      copy_(each.target.view({n, counted, rows / counted}).narrow(2, 0, 1),
            batch.target.view({n, 1, 1}).expand({n, counted, 1}));
    }
    return ClassHead::operator()(x, each);
  }
};
/// Sees the samples of a micro-batch at once.
template <class L> struct Independent : L {
  using L::L;
  static constexpr bool independent = true;
};
/// Layers rows, layer0, layer1 .., head.
template <int64_t rows, class... Layers> struct RowNet : nn::Sequence {
  explicit RowNet(const TensorParallel& tp) {
    add<RowsOf<rows>>("rows", tp);
    int number = 0;
    (add<Layers>(fmt::format("layer{}", number++), tp), ...);
    add<RowHead<rows>>("head", 4, 16, tp, VocabularyOptions{.std = 0.3});
  }
};
template <int64_t rows> using BlockNet = RowNet<rows, Independent<test::Block>, test::Block>;

/// Products outside of split layers, one of them recomputed.
struct Outside : nn::Module {
  explicit Outside(const TensorParallel& tp)
      : up(child<nn::Linear>("up", 16, 20, nn::LinearOptions{.std = 0.3, .shard = tp.whole()})),
        down(child<nn::Linear>("down", 20, 16,
                               nn::LinearOptions{.std = 0.3, .shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x) const {
    return x + recompute([this](const Tensor& h) { return down(h); }, up.gelu(x));
  }
  nn::Linear &up, &down;
};

/// Multiplies each row by a weight that all ranks hold.
struct Scaled : nn::Module {
  explicit Scaled(const TensorParallel& tp)
      : by(parameter({.name = "by", .full = {16}, .init = {.mean = 1}, .shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x) const {
    Tensor y = x;
    for (int i = 0; i < times; ++i) y = y * by;
    return y;
  }
  nn::Parameter& by;
  int times = 1;
};
}  // namespace triax::parallel
