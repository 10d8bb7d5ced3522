#pragma once
#include <vector>

#include "parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel {

/// True if activations may go to host memory: a copy has a time.
bool offloads(const StageTimes& times);

/// Returns the lists within the budget. Where a stage would hold too much, activations go to host
/// memory, those first whose backward is furthest (Belady 1966; by lifespan as Wan et al.,
/// "PipeOffload", 2025), and come back shortly before it. The order of passes stays. Of a few rules
/// for when to copy the cheapest lists are returned; none if a stage has too little room for any.
std::vector<Actions> offloaded(const std::vector<Actions>& lists, const PipelineShape& shape,
                               const StageTimes& times, const Budget& budget);

}  // namespace triax::parallel
