#pragma once
#include <string_view>

#include "triax/parallel/program/program.h"

namespace triax::parallel {

struct PlanOptions;
enum class OneRank;

// The verbs that every program has, one file each. Their settings are bound to options that the
// verb holds, and begin with the defaults of the program.

/// Trains. Its settings are bound to `p.train`.
Verb train_verb(ProgramOptions& p);
/// Compares one rank with a mesh. The program's defaults for it apply only where the words ask for
/// it: they may change the model for all. `use` takes the place of parity(), which prints.
using UseParity = std::function<Exit(const Task&, const TrainOptions&, OneRank)>;
Verb parity_verb(ProgramOptions& p, std::string_view asked, const UseParity& use = {});
/// Predicts memory and time; with the program's defaults for it likewise. `use` takes the place of
/// plan(), which prints.
using UsePlan = std::function<void(const Task&, const PlanOptions&)>;
Verb plan_verb(ProgramOptions& p, std::string_view asked, const UsePlan& use = {});
/// Tells a search what the words of a request fix, and the command that they make of its result.
void take_request(PlanOptions& o, const Invocation& call);
/// Computes the loss of a checkpoint; with the program's defaults for it likewise.
Verb evaluate_verb(ProgramOptions& p, std::string_view asked);
/// Computes a step of a run again.
Verb replay_verb(ProgramOptions& p);
/// Measures this machine.
Verb calibrate_verb(ProgramOptions& p);
/// Shows pipeline schedules, and searches for better ones.
Verb schedule_verb(ProgramOptions& p);
/// Simulates a step of many ranks; with the program's defaults for `plan` likewise.
Verb simulate_verb(ProgramOptions& p, std::string_view asked);
/// Returns verbs that show one checkpoint: `RUN/step-N`, or a run directory, whose newest is taken.
std::vector<Verb> checkpoint_verbs();

/// Makes the model settings of a checkpoint, and what else the program takes from it, the defaults:
/// the words of the call win over them. Returns its path, which is another if it was imported.
std::string take_checkpoint(ProgramOptions& p, std::string path, const Invocation& call);

/// Throws Error 78 for more ranks than this machine's if one of ProgramOptions::plan_needs, whose
/// defaults are for small runs, is not given.
void check_needs(const ProgramOptions& p, const Request& request, double ranks);

/// Returns `2x2x2` (dp x pp x tp) or `2x2x2x2` (dp x pp x cp x tp) as a mesh. Throws Error 78 for
/// another text.
MeshShape mesh_of(const std::string& text);

/// Throws Error 73, which names the flag, if no file can be made at `path`: for a check before long
/// work whose result goes there. Leaves nothing there.
void check_output(const std::string& flag, const std::string& path);

}  // namespace triax::parallel
