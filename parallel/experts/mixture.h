#pragma once
#include "triax/autograd/saves.h"
#include "triax/parallel/experts/exchange.h"
#include "triax/parallel/experts/router.h"
#include "triax/parallel/tensor/linear.h"

namespace triax::parallel {

struct MixtureOptions {
  RouterOptions router = {};
  int64_t hidden = 0;        ///< features of each expert
  int64_t shared = 0;        ///< experts that every row goes to beside those, as one MLP
  bool shared_gate = false;  ///< each row weighs what that gives by a sigmoid (Qwen2-MoE)
  double std = 0.02;         ///< of initial weights
  double out_std = 0.02;     ///< of those of the way out
};

/// Returns the product of swiglu of features gate 0, up 0, gate 1, up 1, ... of h [rows, 2 n]. With
/// Saves::less swiglu's result is made again in backward.
triax::Tensor gated(const Tensor& h, Saves saves, const TensorParallel::Product& product);

/// A mixture of experts, each down(swiglu(gate_up(x))): of each row the k experts that its router
/// chooses, weighed by their scores, and the shared ones (Shazeer et al., 2017; Jiang et al.,
/// "Mixtral of experts", 2024). The ranks of ep share out the experts: rows are sent to them and
/// back. The features of each expert are split over the ranks of tp.
class Mixture : public nn::Module {
 public:
  /// Throws Error 78 for experts that ep does not divide, a top_k above their number, a gate of no
  /// shared experts, and slices of tp for equal bits.
  Mixture(int64_t width, const MixtureOptions& options, const TensorParallel& tp);
  /// Maps x as outside [rows, width] to the same. All ranks of ep call it alike.
  Tensor operator()(const Tensor& x, const nn::Batch& batch, Saves saves = Saves::all) const;

 private:
  Tensor routed(const Tensor& all, const Router::Chosen& chosen, const nn::Batch& batch,
                Saves saves) const;

  MixtureOptions o_;
  TensorParallel tp_;
  Communicator* ranks_;  // of ep; null: one
  Router& router_;
  nn::Parameter &gate_up_, &down_;
  ColumnLinear* shared_in_;
  RowLinear* shared_out_;
  nn::Linear* shared_gate_;
};

}  // namespace triax::parallel
