#pragma once
#include <cmath>

#include "triax/core/check.h"
#include "triax/parallel/tensor/linear.h"

namespace triax::parallel {

/// Low-rank adapters (Hu et al., "LoRA", 2021, section 4.1): a layer adds scale() B A x to what its
/// own weights, which train_adapters() freezes, make of x. A [rank, in] starts normal and B
/// [out, rank] at 0: at first the model is the one without them.
struct LoraOptions {
  int64_t rank = 0;  ///< 0: no adapters
  double alpha = 0;  ///< 0: 2 x rank
  double scale() const { return alpha > 0 ? alpha / double(rank) : 2; }
};

/// The two products of a layer's adapter, named `lora_a` and `lora_b` in it.
template <class Down, class Up> class Adapter {
 public:
  Adapter() = default;  ///< none
  Adapter(Down& a, Up& b, const LoraOptions& o) : a_(&a), b_(&b), scale_(o.scale()) {
    for (nn::Module* m : std::initializer_list<nn::Module*>{a_, b_})
      for (auto* p : m->parameters()) p->adapter = true;
  }
  explicit operator bool() const { return a_ != nullptr; }
  /// Returns y with what it makes of x.
  Tensor added(const Tensor& y, const Tensor& x) const {
    return a_ ? y + (*b_)((*a_)(x)*scale_) : y;
  }

 private:
  Down* a_ = nullptr;
  Up* b_ = nullptr;
  double scale_ = 0;
};

/// A ColumnLinear with an adapter: every rank holds all of A and its rows of B.
class AdaptedColumn : public ColumnLinear {
 public:
  AdaptedColumn(int64_t in, int64_t out, const TensorParallel& tp, const SplitLinearOptions& o,
                const LoraOptions& lora)
      : ColumnLinear(in, out, tp, o) {
    if (lora.rank == 0) return;
    nn::LinearOptions a{1 / std::sqrt(double(in)), false, tp.whole()};
    SplitLinearOptions b{.std = 0, .bias = false, .unit = o.unit};
    lora_ = {child<nn::Linear>("lora_a", in, lora.rank, a),
             child<ColumnLinear>("lora_b", lora.rank, out, tp, b), lora};
  }
  Tensor operator()(const Tensor& x) const { return lora_.added(ColumnLinear::operator()(x), x); }
  /// Returns gelu of that, in one pass without an adapter; needs a bias.
  Tensor gelu(const Tensor& x) const {
    return lora_ ? triax::gelu((*this)(x)) : ColumnLinear::gelu(x);
  }

 private:
  Adapter<nn::Linear, ColumnLinear> lora_;
};

/// A RowLinear with an adapter: every rank holds its columns of A and all of B.
class AdaptedRow : public RowLinear {
 public:
  AdaptedRow(int64_t in, int64_t out, const TensorParallel& tp, const SplitLinearOptions& o,
             const LoraOptions& lora)
      : RowLinear(in, out, tp, o) {
    if (lora.rank == 0) return;
    SplitLinearOptions a{.std = 1 / std::sqrt(double(in)), .bias = false, .unit = o.unit};
    nn::LinearOptions b{0, false, tp.whole()};
    lora_ = {child<RowLinear>("lora_a", in, lora.rank, tp, a),
             child<nn::Linear>("lora_b", lora.rank, out, b), lora};
  }
  Tensor operator()(const Tensor& x) const { return lora_.added(RowLinear::operator()(x), x); }
  /// Returns rest + (*this)(x), as outside.
  Tensor onto(const Tensor& rest, const Tensor& x) const {
    return lora_.added(RowLinear::onto(rest, x), x);
  }

 private:
  Adapter<RowLinear, nn::Linear> lora_;
};

/// Freezes all parameters of a model but those of adapters, if it has any: for the end of its
/// constructor. Throws Error 78 for an alpha without a rank.
inline void train_adapters(nn::Module& model, const LoraOptions& o) {
  check_input(o.rank > 0 || o.alpha == 0, Exit::config,
              "lora-alpha={} without lora\n  Add --lora RANK, or leave it out.", o.alpha);
  if (o.rank == 0) return;
  for (auto* p : model.parameters()) p->frozen = !p->adapter;
}

}  // namespace triax::parallel
