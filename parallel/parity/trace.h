#pragma once
#include <map>
#include <string>
#include <vector>

#include "parallel/train/options.h"
#include "parallel/train/task.h"

namespace triax::parallel {

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
  bool skipped = false;
  Wholes activations;  ///< what layers returned, the micro-batches of all replicas along dim 0
  Wholes gradients;    ///< times the loss scale
  Wholes state;        ///< weights and optimizer state after the step
};

/// What a run did, from its first state on.
struct Trace {
  std::vector<std::string> layers, parameters;  ///< in the order of computation, of declaration
  Wholes initial;
  std::vector<TraceStep> steps;
};

/// Trains `task` on the mesh of `o`, whose ranks are threads of this process, for `o.steps` steps,
/// and notes everything. With `lead`, every step starts from the state that `lead` had before it,
/// so that what differs differs because of this step.
Trace trace(const Task& task, TrainOptions o, const Trace* lead = nullptr);

}  // namespace triax::parallel
