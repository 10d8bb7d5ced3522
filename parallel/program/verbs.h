#pragma once
#include "parallel/plan/plan.h"
#include "parallel/program/program.h"

namespace triax::parallel {

/// The verbs that every program has, their settings bound to the options that are passed.
/// `mesh_for`: ranks for which to print a mesh, 0 to train.
Verb train_verb(TrainOptions& o, const ProgramOptions& program, int64_t& mesh_for);
/// What `parity` compares.
struct ParityRuns {
  std::string mesh = "2x2x2";       ///< DPxPPxTP
  bool same_micro_batches = false;  ///< the one rank takes those of the mesh
};
Verb parity_verb(TrainOptions& o, ParityRuns& runs, const ProgramOptions& program);
Verb plan_verb(PlanOptions& o, const ProgramOptions& program);
/// Those of its settings that the `train` command of a plan has on its own account, or not at all.
bool is_planned(const Setting& setting);

/// `2x2x2` as a mesh. Throws Error 78 for another text.
MeshShape mesh_of(const std::string& text);

}  // namespace triax::parallel
