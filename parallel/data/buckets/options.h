#pragma once
#include <functional>
#include <map>
#include <string>

#include "triax/nn/layer.h"
#include "triax/optim/offload.h"
#include "triax/parallel/data/buckets/buckets.h"
#include "triax/parallel/mesh.h"

namespace triax::parallel {

/// State that is sharded over the dp axis instead of held by every rank (Rajbhandari et al.,
/// "ZeRO", 2020, section 5). Each stage includes those before it.
enum class Zero {
  off,         ///< nothing: gradients are summed everywhere (DDP)
  optimizer,   ///< 1: optimizer state; gradients are summed where they are used, weights gathered
  gradients,   ///< 2: gradients, summed after each micro-batch and dropped elsewhere
  parameters,  ///< 3: weights, gathered layer by layer when used and dropped
};

/// The cure for models that ZeRO stages 2 and 3 cannot train.
inline constexpr const char* if_modules_are_left_out =
    "\n  With ZeRO stages 2 and 3 each backward pass has to reach all parameters. If a layer "
    "leaves a module out for some samples, take --zero 0 or 1, or have it use the module each "
    "time, if need be times 0.";

struct DataParallelOptions {
  DType dtype = f32;  ///< that of the weights; gradients are f32 (f64 for f64)
  uint64_t seed = 0;
  Zero zero = Zero::off;
  /// The place of weights and gradients between uses, with ZeRO-3. A step then has those of the
  /// layers at work on its device, and with files those of a few more on the host.
  optim::Offload offload = {};
  std::map<std::string, optim::Offload::To> layers = {};  ///< overrides `offload` by name
  BucketSizes buckets = {};
  nn::Purpose purpose = nn::Purpose::training;  ///< inference: weights alone, 0 until loaded
  /// Changes rates of parameters or freezes them; they have their full names by then.
  std::function<void(nn::Module&)> tune = {};
  enum class Prefetch { off, next } prefetch = Prefetch::next;  ///< of layers' weights (ZeRO-3)
  /// True if gradients are summed in fixed point, in f64: bits that do not depend on dp or on the
  /// order of the sum, if layers see one sample at a time. f32, bf16 and f16, on CPUs.
  bool bitwise = false;
  int64_t samples = 1;    ///< samples of a backward pass, for `bitwise`
  int64_t row_parts = 1;  ///< equal parts of a sample's rows here, likewise
  /// The dtype in which gradients are sent over dp: f32 sends them as they are; with bf16 each rank
  /// rounds its own, sums are made as `ReduceOp` says, arrive in bf16, and go on in f32.
  DType reduce_dtype = f32;
  /// The axes of the mesh whose ranks hold the same of what ZeRO shards over others.
  AxisSet replicated = {};
  /// The pipeline stages that hold tied parameters: the first and the last, which sum their parts
  /// of the gradients, or, where one stage has both ends of the model, the first alone.
  enum class Ties { both_ends, first } ties = Ties::both_ends;
};

}  // namespace triax::parallel
