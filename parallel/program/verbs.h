#pragma once
#include "parallel/plan/plan.h"
#include "parallel/program/program.h"

namespace triax::parallel {

/// The verbs that every program has, their settings bound to the options that are passed.
Verb train_verb(TrainOptions& o, const ProgramOptions& program);
/// `mesh`: DPxPPxTP.
Verb parity_verb(TrainOptions& o, std::string& mesh, const ProgramOptions& program);
Verb plan_verb(PlanOptions& o, const ProgramOptions& program);
/// Those of its settings that the `train` command of a plan has on its own account, or not at all.
bool is_planned(const Setting& setting);

/// What `calibrate` can be told.
struct CalibrateOptions {
  LaunchOptions launch;
  std::string out;  ///< empty: stdout
};
Verb calibrate_verb(CalibrateOptions& o, const std::string& program);

/// What `schedule` can be told.
struct ScheduleOptions {
  std::string schedule = "1f1b";
  PipelineShape shape = {4, 0, 8};
  bool json = false;
};
Verb schedule_verb(ScheduleOptions& o, const Schedules& schedules);

/// `2x2x2` as a mesh. Throws Error 78 for another text.
MeshShape mesh_of(const std::string& text);

}  // namespace triax::parallel
