#pragma once
#include <vector>

#include "triax/nn/layer.h"
#include "triax/parallel/checkpoint/checkpoint.h"
#include "triax/parallel/mesh.h"

namespace triax::parallel {

/// The replicas that give a value: the one that owns it, or any.
enum class Holder { owner, any };

/// The buffers (nn::Buffer) of the layers that this rank's stage holds: side by side in memory, so
/// that one all-reduce over all with other data sums what replicas have accumulated in a step.
class Buffers {
 public:
  /// Allocates and initialises the buffers. `mesh` must outlive it.
  Buffers(const std::vector<nn::Layers>& chunks, Mesh& mesh);

  /// Clears the sums, before the first forward of a step.
  void begin();
  /// Updates the buffers by a step's decision (a StepDecision on the device). Collective.
  void update(const Tensor& decision);
  /// Returns the largest of shares (Buffer::Rule::share), over the mean of its buffer: the load of
  /// the busiest expert. 0 without such buffers.
  double busiest() const;
  /// Returns the buffers by name, as a checkpoint holds them.
  std::vector<Piece> pieces(Holder whose) const;

 private:
  Mesh& mesh_;
  Communicator& data_;  // of those who train weights of their own, too
  std::vector<nn::Buffer*> all_;
  Tensor sums_;  // the sums of all buffers
};

}  // namespace triax::parallel
