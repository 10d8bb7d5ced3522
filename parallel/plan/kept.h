#pragma once

#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// True if the schedule is one of the library's own (schedule_names). They take any number of
/// micro-batches, and when the pipeline is full, each further one costs as much as those before it.
/// That is not known of a program's own schedules, and a schedule from a file has one shape.
bool is_built_in(const StepOptions& o);

/// Returns the micro-batches after which this stage holds no more than before: all of a step's for
/// gpipe, which keeps every one, and for schedules that are not built in. `o` is resolved.
int64_t filling(const StepOptions& o, int stage);

}  // namespace triax::parallel
