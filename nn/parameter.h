#pragma once
#include <map>
#include <optional>
#include <string>

#include "triax/autograd/record.h"
#include "triax/core/tensor.h"

namespace triax::nn {

/// How the ranks along an axis of a mesh hold a parameter.
enum class Along {
  slice,  ///< each another slice
  alike,  ///< all the same, and each computes all of its gradient
  parts   ///< all the same, but each sees other tokens or features: gradients are to be summed
};

/// The slice of the full parameter that this rank holds: [begin, begin + length) of `dim`, or all
/// of it. Written once, used for initialisation, checkpoints, the gradient norm and reductions.
struct Shard {
  int dim = 0;
  int64_t begin = 0;
  int64_t length = -1;  ///< -1: to the end
  int64_t padding = 0;  ///< rows behind the slice (dim 0 only): zero, never seeded or saved
  /// How the ranks along an axis hold it, by the axis's name, for axes that its layer knows. Along
  /// axes that cut samples or rows gradients are summed, unless its ranks hold slices.
  std::map<std::string, Along, std::less<>> along = {};
  /// bitwise: equal parts of a sample's rows here, each summed separately; 0: its op says which
  int64_t chains = 1;
  int64_t groups = 1;  ///< bitwise: equal parts of features here, each summed as if alone
  /// A range of dim 0, [first, first + count), beside the slice of another dim: some of the experts
  /// of a mixture, say, and of each some of the features.
  int64_t first = 0, count = -1;  ///< -1: all

  bool is(std::string_view axis, Along how) const {
    auto found = along.find(axis);
    return found != along.end() && found->second == how;
  }
};

/// Initial values: normal(mean, std), each a function of (seed, full name, position in the full
/// tensor) alone, so they do not depend on the mesh. std 0 gives the constant `mean`.
struct Init {
  double mean = 0, std = 0;
};

/// A named parameter of a module: description and (after materialize or DataParallel) value.
struct Parameter {
  std::string name;  ///< within its module; after bind() the full path, `block0.qkv.weight`
  Shape full;        ///< of the unpadded, unsliced tensor
  Init init = {};
  Shard shard = {};
  bool decay = false;                       ///< whether weight decay applies (matrices)
  double lr = 1;                            ///< multiplies the learning rate
  std::optional<double> weight_decay = {};  ///< replaces the optimizer's, whatever `decay` says
  bool table = false;                       ///< rows of tokens or classes: Muon leaves it to AdamW
  bool tied = false;     ///< used by the first and the last layer: a pipeline holds it at both ends
  bool frozen = false;   ///< never trained: no gradient, no optimizer state; not in the norm
  bool adapter = false;  ///< of an adapter: a checkpoint of the model without it may lack it
  bool stacked = false;  ///< dim 0 counts matrices, such as experts
  uint64_t key = 0;      ///< random stream, set by Module::bind
  Tensor value = {};     ///< a leaf of shape local()

  operator const Tensor&() const { return value; }
  /// Returns the shape of this rank's slice.
  Shape slice() const;
  /// Returns the shape that this rank stores: the slice, with its padding.
  Shape local() const;
  /// Writes this rank's initial values into `to`, of shape local().
  void fill(const Tensor& to) const;

 private:
  void fill_slice(const Tensor& to) const;
};

}  // namespace triax::nn
