#pragma once
#include <functional>
#include <vector>

#include "triax/nn/layer.h"
#include "triax/optim/offload.h"
#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// Parameters that may share a bucket, in order of declaration: all are frozen, or none.
struct ParameterGroup {
  std::vector<nn::Parameter*> parameters;
  int passes = 1;      ///< backward passes that each sees per micro-batch: chunks that use it
  bool whole = false;  ///< one bucket however large: a unit that comes and goes as a whole
};

/// The grouping of parameters. A tied parameter is alone, so that both ends of a pipeline cut it at
/// the same places, and so is one that several chunks use; chunks of a pipeline finish at different
/// times and share nothing else.
enum class Grouping {
  by_chunk,  ///< reduced together: one group for each chunk
  by_layer   ///< gathered together: one group for each layer
};
/// Returns the ranks over which a parameter's gradient is summed.
using SummedOver = std::function<const Communicator*(const nn::Parameter&)>;
/// Groups parameters in about the order in which backward completes them, frozen ones last; without
/// chunks, all of `model`. Those of a group are summed over the same ranks.
std::vector<ParameterGroup> group(nn::Module& model, const std::vector<nn::Layers>& chunks,
                                  Grouping grouping, const SummedOver& over);

/// Elements of a parameter that lie in a flat bucket or optimizer slot.
struct FlatPiece {
  nn::Parameter* parameter;
  int64_t begin;  ///< its first element in the flat tensor
  int64_t length;
  int64_t first = 0;  ///< its first element in the parameter's local() shape, row-major
};

/// Parameters that are reduced together.
struct BucketLayout {
  std::vector<FlatPiece> pieces;  ///< whole parameters
  int64_t length = 0;             ///< elements, with the padding between and behind pieces
  int passes = 1;                 ///< that of their group
  optim::Offload::To to = optim::Offload::To::off;  ///< where this rank's slice is between uses
  size_t record = 0;  ///< index of its weights in a file's window; its sums and gradient follow
  bool frozen() const { return pieces[0].parameter->frozen; }
};

struct BucketSizes {
  int64_t first =
      int64_t{1} << 18;        ///< elements (1 MiB of f32): small, so that reducing starts soon
  int64_t other = 25 * first;  ///< elements

  /// Returns sizes for data parallelism of `dp` such devices. GPUs reach the rate of their links
  /// with large sums only (Megatron-LM: 40 million elements, or a million for each rank).
  static BucketSizes on(Device::Kind kind, int64_t dp) {
    BucketSizes sizes;
    if (kind == Device::Kind::cuda) sizes.other = std::max<int64_t>(40'000'000, 1'000'000 * dp);
    return sizes;
  }
};

/// Cuts groups into buckets, each in reverse order of declaration, which is about the order in
/// which backward completes them. A bucket is closed before it would exceed its size; a larger
/// parameter gets one of its own. Pieces start at multiples of 16 elements, and so do the `ranks`
/// equal slices of a bucket.
std::vector<BucketLayout> lay_out(const std::vector<ParameterGroup>& groups,
                                  const BucketSizes& sizes, int ranks);

/// One rank's share of a bucket, and the communication under way with it.
struct Bucket {
  BucketLayout layout;
  Communicator* over = nullptr;  ///< the ranks that hold the same: HeldModel::over
  Tensor weight, grad;           ///< flat, of the layout's length; their bytes may come and go
  Tensor my_weight, my_grad;  ///< flat: the slice that this rank updates, from element `my_first`
  Tensor my_sums;             ///< the sums of my_grad: itself, or fixed point
  int64_t my_first = 0;
  std::vector<std::shared_ptr<autograd::GradientView>> views = {};  ///< of trained pieces, in grad

  // Written by begin() and fire() alone.
  std::vector<int64_t> fired = {};  ///< backward passes completed in this step, per piece
  int64_t complete = 0;             ///< passes that all pieces have completed
  int64_t due = 0;                  ///< backward passes each piece will see in this step
  int64_t reductions = 0;           ///< started in this step
  Tensor sending = {}, arriving = {};
  Work reducing = {};

  int users = 0;  ///< layers at work that need the gathered weights
  Work gathering = {};

  Bucket(const BucketLayout& l)
      : layout(l),
        views(l.frozen() ? 0 : l.pieces.size()),
        fired(l.pieces.size()),
        behind_(fired.size()) {}
  bool offloaded() const { return layout.to != optim::Offload::To::off; }
  bool in_file() const { return layout.to == optim::Offload::To::file; }
  /// Prepares a step in which each piece sees this many passes.
  void begin(int64_t passes);
  /// Counts a backward pass that has completed this piece.
  void fire(size_t piece);
  /// Returns the range of a piece that lies in this rank's slice, from the slice's first element.
  Range mine(const FlatPiece& piece) const;
  /// Returns the ranges of the slice that belong to such parameters. Neighbours are one range, with
  /// the padding between them, which is zero and stays zero.
  std::vector<Range> mine(const std::function<bool(const nn::Parameter&)>& such) const;

 private:
  size_t behind_;  // pieces whose `fired` is `complete`
};

}  // namespace triax::parallel
