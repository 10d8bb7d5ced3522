#pragma once
#include <map>
#include <string>
#include <vector>

#include "examples/minigpt/config.h"
#include "examples/minigpt/text_data.h"

namespace triax::minigpt {

/// A full tensor put together from the ranks that hold pieces of it.
struct Assembled {
  std::vector<float> values;
  std::vector<bool> known;  ///< per element: has a rank brought it?
  std::string conflict;     ///< where two ranks brought different bits; empty: nowhere
  int64_t missing() const;
};
/// By name: `block0.qkv.weight`, `block0.qkv.weight/m`, or of a layer.
using Wholes = std::map<std::string, Assembled>;

/// One step, seen whole.
struct TraceStep {
  double loss = 0;
  std::vector<double> norms;  ///< of the gradient, as each rank has it
  Wholes activations;         ///< what layers returned, [global batch * context, width]
  Wholes gradients;           ///< times the first loss scale
  Wholes state;               ///< weights and moments after the step
};

/// What a run did, from its first state on.
struct Trace {
  Wholes initial;
  std::vector<TraceStep> steps;
};

/// Train on `c`'s mesh, whose ranks are threads of this process, and note everything. `c` is
/// resolved and validated. With `lead`, every step starts from the state that `lead` had before
/// it, so that what differs differs because of this step.
Trace trace(const TrainConfig& c, const TextData& text, const Trace* lead = nullptr);

}  // namespace triax::minigpt
