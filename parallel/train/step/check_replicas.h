#pragma once
#include "parallel/train/step/step.h"

namespace triax::parallel {

/// Compares, bit for bit, replicated weights, buffers and optimizer state after `number` steps:
/// data-parallel replicas all of it, tensor-parallel ranks what they do not split, both ends of a
/// pipeline a tied embedding. Equal sums went into all of them, so that on hosts of one instruction
/// level any difference is a fault of a machine. Collective. Throws Error 76 on all ranks, which
/// names the ranks outside of the majority and the first tensor that differs.
void check_replicas(const Step& step, Communicator& ranks, int64_t number);

}  // namespace triax::parallel
