#pragma once
#include <vector>

#include "nn/layer.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/mesh.h"

namespace triax::parallel {

/// Whose copy of a value: of replicas one is the owner.
enum class Holder { owner, any };

/// The buffers (nn::Buffer) of the layers that this rank's stage holds: side by side in memory, so
/// that one all-reduce over the dp axis adds up what all replicas have accumulated in a step.
class Buffers {
 public:
  /// Allocates and initialises. `mesh` must outlive it.
  Buffers(const std::vector<nn::Layers>& chunks, Mesh& mesh);

  /// Before the first forward of a step.
  void begin();
  /// After the decision about a step (a StepDecision on the device). Collective over dp.
  void update(const Tensor& decision);
  /// By name, as a checkpoint holds them.
  std::vector<Piece> pieces(Holder whose) const;

 private:
  Mesh& mesh_;
  std::vector<nn::Buffer*> all_;
  Tensor sums_;  // of all of them
};

}  // namespace triax::parallel
