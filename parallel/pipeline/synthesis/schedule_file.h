#pragma once
#include <string>
#include <vector>

#include "triax/parallel/pipeline/synthesis/synthesis.h"

namespace triax::parallel {

/// A schedule that was found, with the problem that it solves: one JSON object
///
///     {"stages": 2, "chunks": 1, "micros": 2, "placement": "ring", "hold": 0.5,
///      "objective": "span", "cap": [2, 2], "times": [[1, 1, 1, 0.1], [1, 1, 1, 0]],
///      "cost": 8.2, "bound": 8.2, "lists": ["F0.0 F0.1 B0.0 W0.0 B0.1 W0.1", ...]}
///
/// `cap` and `lists` are by stage, `times` (StageTimes) by virtual stage, with a
/// fifth number where activations may go to host memory: the time of the copy. `placement` is
/// `ring` or `v`. An action is F (forward), B (backward_input), W (backward_weight), A (a whole
/// backward), O (offload) or R (reload), chunk, micro-batch.
struct ScheduleFile {
  PipelineShape shape;
  StageTimes times;
  Budget budget;
  double cost = 0, bound = 0;
  std::vector<Actions> lists;
};

/// Returns the text of a schedule file.
std::string schedule_json(const ScheduleFile& schedule);

/// Reads such a text and trusts nothing in it: lists (check_schedule), memory, cost and bound are
/// checked. Throws Error 65 with `path` and the place for what is damaged or wrong.
ScheduleFile parse_schedule(const std::string& text, const std::string& path);
/// Reads a schedule file likewise. Throws Error 66 if there is none.
ScheduleFile read_schedule(const std::string& path);

/// Reads the `times` of a file, which need hold nothing else. Errors as read_schedule().
StageTimes read_times(const std::string& path);

/// True if `name` is the path of a schedule file, which ends in `.json`, not a schedule's name.
bool is_schedule_file(const std::string& name);

/// Returns the file's lists as a schedule, which throws Error 78 for a shape other than theirs.
Schedule schedule_from(const ScheduleFile& schedule, const std::string& path);

}  // namespace triax::parallel
