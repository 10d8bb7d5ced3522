#pragma once
#include <functional>
#include <map>
#include <string>

#include "nn/layer.h"
#include "optim/offload.h"
#include "parallel/data/buckets/buckets.h"

namespace triax::parallel {

/// What the ranks of the dp axis share out instead of holding it all (Rajbhandari et al., "ZeRO",
/// 2020, section 5). Each stage includes those before it.
enum class Zero {
  off,         ///< nothing: gradients are summed everywhere (DDP)
  optimizer,   ///< 1: optimizer state; gradients are summed where they are used, weights gathered
  gradients,   ///< 2: gradients, summed after each micro-batch and dropped elsewhere
  parameters,  ///< 3: weights, gathered layer by layer when used and dropped
};

/// What to do about models that ZeRO stages 2 and 3 cannot train.
inline constexpr const char* if_modules_are_left_out =
    "\n  With ZeRO stages 2 and 3 each backward pass has to reach all parameters. If a layer "
    "leaves a module out for some samples, take --zero 0 or 1, or have it use the module each "
    "time, if need be times 0.";

struct DataParallelOptions {
  DType dtype = f32;  ///< of the weights; gradients are f32 (f64 for f64)
  uint64_t seed = 0;
  Zero zero = Zero::off;
  /// Of weights and gradients between uses, with ZeRO-3: a step then has those of the layers at
  /// work where it computes, and with files those of a few more on the host.
  optim::Offload offload = {};
  std::map<std::string, optim::Offload::To> layers = {};  ///< of these by name, in its place
  BucketSizes buckets = {};
  nn::Purpose purpose = nn::Purpose::training;  ///< inference: weights alone, 0 until loaded
  /// May change rates of parameters, and freeze them; they have their full names by then.
  std::function<void(nn::Module&)> tune = {};
  enum class Prefetch { off, next } prefetch = Prefetch::next;  ///< of layers' weights (ZeRO-3)
  /// Gradients are added up in fixed point, in f64: bits that do not depend on dp or on who adds
  /// first, if layers see one sample at a time. f32, bf16 and f16, on CPUs.
  bool bitwise = false;
  int64_t samples = 1;  ///< of a backward pass, for `bitwise`
  /// bf16: gradients are sent over dp in bf16. Each rank rounds what it brings; sums are made as
  /// `ReduceOp` says, arrive in bf16, and go on in f32. f32: they are sent as they are.
  DType reduce_dtype = f32;
  /// Where tied parameters are, of a pipeline: on its first and last stage, which sum what each has
  /// of their gradients, or, where one stage has both ends of the model, on the first alone.
  enum class Ties { both_ends, first } ties = Ties::both_ends;
};

}  // namespace triax::parallel
