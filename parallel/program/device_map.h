#pragma once
#include <string>

#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// Distributes the layers of a model over the GPUs of one process, host memory and files, as
/// Accelerate's `device_map` does, by filling in `o`: a pipeline stage for each GPU, and ZeRO-3
/// with StepOptions::places for layers whose weights, gradients and optimizer state are elsewhere
/// between uses. `what` is the name of a JSON file that gives every layer a place,
///
///   {"embedding": 0, "block0": 0, "block1": "cpu", "block2": "disk", "head": 1}
///
/// where "" stands for all layers that it does not name, or `auto`: as many layers as fit stay on
/// the GPUs of `--device cuda` (without it, in the host's memory), the last ones go to the host and
/// then to files. The need is rehearsed (foresee) and compared with the memory that is free now.
/// "cpu" and "disk" are computed on the GPU of the layer before, without GPUs on the CPU.
///
/// Returns lines that say where each layer is. Throws Error 66 or 65 for the file, 78 for a map
/// that does not fit the model, the GPUs or `o`, 71 if nothing fits.
std::string apply_device_map(const std::string& what, const Task& task, TrainOptions& o);

}  // namespace triax::parallel
