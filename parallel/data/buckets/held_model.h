#pragma once
#include <memory>
#include <span>
#include <vector>

#include "triax/parallel/data/buckets/buckets.h"
#include "triax/parallel/data/buckets/options.h"
#include "triax/parallel/mesh.h"

namespace triax::parallel {

/// A model's weights and gradients as this rank holds them, and the ranks that have the rest.
struct HeldModel {
  Communicator& dp;
  /// Ranks that sum gradients beside dp; null for none. All of `all` agree about skipping a step.
  Communicator *tp = nullptr, *ends = nullptr, *all = nullptr;
  Mesh* mesh = nullptr;  ///< null: dp alone
  /// The ranks along an axis, who hold the same of a parameter unless they hold slices of it.
  struct AxisRanks {
    std::string name;
    Communicator* ranks;
  };
  std::vector<AxisRanks> features = {};  ///< the axes that cut features
  std::vector<AxisRanks> copies = {};    ///< the axes whose ranks do not share state out
  DataParallelOptions options;
  std::vector<nn::Parameter*> declared = {};          ///< the parameters of the whole model
  std::vector<std::unique_ptr<Bucket>> buckets = {};  ///< the trained ones come first
  size_t trained_buckets = 0;

  std::span<const std::unique_ptr<Bucket>> trained() const {
    return std::span(buckets).first(trained_buckets);
  }
  /// Returns the bucket that has `p`; null where this rank holds none of it.
  Bucket* holder(const nn::Parameter* p) const;
  /// Takes the groups of a mesh. Collective over its world.
  void join(Mesh& on);
  /// Returns the ranks of dp that hold the same of `p`, or share it out with ZeRO: its gradient is
  /// summed over them.
  Communicator& over(const nn::Parameter& p) const;
  /// True if weights of such parameters are cut over those ranks.
  bool cuts(bool frozen) const {
    return options.zero >= (frozen ? Zero::parameters : Zero::optimizer);
  }
  /// True for one rank of all that hold the same of `p`: it saves it and counts it in the norm.
  bool owns(const nn::Parameter& p) const;
  /// Calls `see` with the index of each trained parameter, in order of declaration, and this
  /// rank's part of its gradient (`of`: Bucket::my_grad, or my_sums), which may be nothing.
  template <class See> void each_gradient(Tensor Bucket::*of, See&& see) const {
    for (size_t i = 0; i < declared.size(); ++i) {
      Bucket* b = holder(declared[i]);
      if (!b || declared[i]->frozen) continue;
      for (auto& piece : b->layout.pieces) {
        if (piece.parameter != declared[i]) continue;
        Range r = b->mine(piece);
        auto held = (b->*of).storage()->hold(Access::read);
        see(i, (b->*of).narrow(0, r.begin, r.end - r.begin));
      }
    }
  }
  /// Returns the dtype that gradients are summed in.
  DType sum_dtype() const { return options.bitwise ? f64 : accumulator(options.dtype); }
};

}  // namespace triax::parallel
