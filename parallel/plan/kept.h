#pragma once

#include "parallel/pipeline/schedule.h"
#include "parallel/train/options/options.h"

namespace triax::parallel {

/// The most micro-batches (each in one chunk) whose activations a stage keeps at once.
struct Kept {
  int live = 0;     ///< from forward until the gradient of the input
  int held = 0;     ///< from forward until the gradients of the weights
  int waiting = 0;  ///< between these, in schedules that defer the latter
  bool operator==(const Kept&) const = default;
};
/// Returns that of a stage with this list. With `layers`, the layers of each of its chunks, a
/// micro-batch counts once for each layer of its chunk.
Kept most_kept(const Actions& list, const std::vector<int>& layers = {});

/// True if the schedule is one of the library's own (schedule_names). They take any number of
/// micro-batches, and when the pipeline is full, each further one costs as much as those before it.
/// That is not known of a program's own schedules, and a schedule from a file has one shape.
bool is_built_in(const StepOptions& o);

/// Returns the micro-batches after which this stage holds no more than before: all of a step's for
/// gpipe, which keeps every one, and for schedules that are not built in. `o` is resolved.
int64_t filling(const StepOptions& o, int stage);

}  // namespace triax::parallel
