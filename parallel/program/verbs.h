#pragma once
#include "parallel/plan/plan.h"
#include "parallel/program/program.h"

namespace triax::parallel {

/// The verbs that every program has, their settings bound to the options that are passed.
Verb train_verb(TrainOptions& o, const ProgramOptions& program);
/// `mesh`: DPxPPxTP.
Verb parity_verb(TrainOptions& o, std::string& mesh, const ProgramOptions& program);
Verb plan_verb(PlanOptions& o, const ProgramOptions& program);

/// `2x2x2` as a mesh. Throws Error 78 for another text.
MeshShape mesh_of(const std::string& text);

}  // namespace triax::parallel
