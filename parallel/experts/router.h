#pragma once
#include "triax/nn/batch.h"
#include "triax/nn/module.h"
#include "triax/parallel/tensor/tensor_parallel.h"

namespace triax::parallel {

struct RouterOptions {
  int64_t experts = 8, top_k = 2;
  enum class Score { softmax, sigmoid } score = Score::softmax;
  enum class Weights {
    normalized,
    plain
  } weights = Weights::normalized;  ///< the weights of the k, made to add up to 1 or not
  double weight_scale = 1;          ///< multiplies them
  double std = 0.02;                ///< of the initial weight
  double balance = 0;               ///< factor of the load-balancing loss
  /// The rows whose share of choices the loss balances. Only `micro_batch` depends on the mesh.
  enum class Over { sequence, step, micro_batch } over = Over::sequence;
  double z_loss = 0;     ///< factor of the z-loss
  double bias_rate = 0;  ///< above 0: a step of the biases that balance without a loss
  double capacity = 0;   ///< above 0: in training an expert takes so many times its even share
};

/// Chooses k experts for each row: those with the largest scores of x w^T. Nothing that it computes
/// depends on the samples beside a row's own, but for `Over::micro_batch`, so meshes agree: balance
/// and capacity are those of a sequence, biases move by the counts of the whole step.
class Router : public nn::Module {
 public:
  Router(int64_t width, const RouterOptions& options, const TensorParallel& tp);

  /// The scores of rows as outside, f32 [rows, experts].
  struct Scored {
    Tensor logits, scores;
  };
  Scored score(const Tensor& x) const;
  /// The experts of rows, i32 [rows, k] on the host, and their weights, f32 where the scores are;
  /// `taken` has the number of experts in place of one that has no room.
  struct Chosen {
    Tensor experts, weights, taken;
  };
  /// Chooses by `scores` of all rows that this rank has of its samples, and counts them. Waits for
  /// the device.
  Chosen choose(const Tensor& scores, const nn::Batch& batch) const;
  /// Returns y with the losses of rows as outside, in whose samples the rows of all ranks of tp
  /// have chosen `experts`.
  Tensor with_losses(const Tensor& y, const Scored& scored, const Tensor& experts,
                     const nn::Batch& batch) const;

 private:
  Tensor within_capacity(const Tensor& experts, const nn::Batch& batch) const;
  std::vector<double> shares(const Tensor& experts, const nn::Batch& batch) const;

  RouterOptions o_;
  TensorParallel tp_;
  nn::Parameter& weight_;
  nn::Buffer& load_;
  nn::Buffer* bias_;
};

}  // namespace triax::parallel
