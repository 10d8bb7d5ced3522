#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "parallel/pipeline/synthesis/schedule_file.h"

namespace triax::parallel {

/// A comparison of schedules for the same stages and micro-batches with one that was found.
struct Comparison {
  struct Row {
    std::string name;
    int chunks = 1;
    Placement placement = Placement::ring;
    double cost = 0;           ///< Budget::objective
    double bubble = 0;         ///< share of the cost in which the busiest stage is idle
    std::vector<double> peak;  ///< per stage, in activations of a whole stage
  };
  std::vector<Row> rows;  ///< of the schedules that the shape allows; the found one last
  ScheduleFile found;
  double best_bubble() const;  ///< of a schedule that costs found.bound
};

/// Returns the row of lists with their cost.
Comparison::Row row_of(const std::string& name, const ScheduleFile& lists);

/// Returns the times of the virtual stages of a shape, or none.
using TimesOf = std::function<StageTimes(const PipelineShape&)>;

/// Returns a schedule for the stages, micro-batches and memory of `found`, with its cost and bound.
/// No lists, if its shape has no times or does not fit.
ScheduleFile beside(const ScheduleFile& found, const Schedule& schedule, const TimesOf& times);

/// Compares. `times`: of the virtual stages of that shape; schedules for which it returns none are
/// left out. Of schedules with the same lists the first is shown.
Comparison compare(const std::map<std::string, Schedule>& schedules, const ScheduleFile& found,
                   const TimesOf& times);

/// Returns text for a terminal: a table, the bound, and the found one's distance from it.
std::string comparison_text(const Comparison& comparison);
/// Returns one JSON object: the fields of ScheduleFile but its times and lists, `best_bubble`, and
/// `rows` of `name`, `chunks`, `cost`, `bubble`, `peak`.
std::string comparison_json(const Comparison& comparison);

}  // namespace triax::parallel
