#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "nn/batch.h"
#include "optim/optimizer.h"
#include "parallel/mesh.h"

namespace triax::parallel {

/// An axis that a program adds to meshes (StepOptions::add_axis): it gets a flag, `--NAME N`, and a
/// place in the mesh, its texts, errors, ledger and plan. Layers that split something along an axis
/// of features find its ranks by TensorParallel::on.
struct AxisKind {
  std::string name, help;
  Cuts cuts = Cuts::samples;
  /// The rule of ZeRO along an axis of samples or rows. With `shard` its ranks share state out;
  /// with `replicate` all hold the same slices, whose gradients are summed at the end of a step
  /// (hybrid sharding: Zhao et al., "PyTorch FSDP", 2023, section 3.2.2).
  enum class Zeros { shard, replicate } zeros = Zeros::shard;
  /// Needed if it cuts rows: `share` returns a rank's part of a batch, `rows` makes Batch::rows.
  std::function<nn::Batch(const nn::Batch& batch, int ranks, int rank)> share = {};
  std::function<std::unique_ptr<nn::RowRanks>(Communicator& ranks)> rows = {};
  /// Needed if it cuts weights, whose ranks train by themselves: makes an optimizer that calls
  /// `inner` and brings the weights of `slots` together.
  using Around = std::function<std::unique_ptr<optim::Optimizer>(
      std::unique_ptr<optim::Optimizer> inner, const std::vector<optim::Slot>& slots,
      Communicator& ranks)>;
  Around around = {};
};

}  // namespace triax::parallel
