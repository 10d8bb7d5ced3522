#pragma once
#include <string>
#include <vector>

#include "parallel/pipeline/synthesis/synthesis.h"
#include "parallel/settings/command_line.h"
#include "parallel/train/options.h"

namespace triax::parallel {

/// What `schedule` can be told.
struct ScheduleOptions {
  std::string schedule = "1f1b";  ///< a name, or a path (is_schedule_file)
  PipelineShape shape = {4, 0, 8};
  bool json = false;
  std::string times = "1,1,1,0";  ///< F,B,W,C of a whole stage, or a path
  std::string scale;              ///< factors of the stages' times; empty: 1
  bool search = false;
  std::string memory = "1p";  ///< `1.5p`: 1.5 x stages activations; or their number
  Budget budget = {};         ///< its caps are `memory`
  int64_t seed = 1;
  std::string save;
};
Verb schedule_verb(ScheduleOptions& o, const Schedules& schedules);

/// Prints a schedule, or looks for one and prints it beside the others. `given`: flags that were.
Exit show_schedule(const ScheduleOptions& o, const Schedules& schedules,
                   const std::vector<std::string>& given);

}  // namespace triax::parallel
