#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/launch/world.h"
#include "parallel/settings/command_line.h"
#include "parallel/train/model/task.h"
#include "parallel/train/options/options.h"
#include "parallel/train/trainer.h"

namespace triax::parallel {

/// What makes a program of a model and its data.
struct ProgramOptions {
  std::string name;         ///< of the executable
  std::string what;         ///< one sentence for --help
  TrainOptions train = {};  ///< defaults; schedules of the program's own are added here
  /// Options of the model and the data, bound to the program's. Those of the group `Model` are
  /// what `--init` takes from a checkpoint.
  Settings settings = {};
  /// With `--init`, before the task is asked for: the checkpoint's path, or its run directory, and
  /// what it carries along.
  std::function<void(const std::string& path, const CheckpointState&)> init = {};
  /// The task, once all options are read. On every rank, or once for ranks that are threads.
  std::function<Task()> task;
  std::function<void(Trainer&)> prepare = {};  ///< on every rank before training: callbacks
  /// Smaller defaults for `parity`, which trains the task several times: called before its flags
  /// are read.
  std::function<void(TrainOptions&)> parity_defaults = {};
  /// Called before the flags of `plan` are read: a micro-batch, which it otherwise looks for, or
  /// that the task needs no values, only shapes.
  std::function<void(TrainOptions&)> plan_defaults = {};
  /// A setting that `plan` has no default for where it is for more ranks than this machine's.
  struct PlanNeed {
    std::string name, example;
    std::string or_else = {};  ///< another one that decides it too
  };
  std::vector<PlanNeed> plan_needs = {};
  std::vector<Verb> verbs = {};  ///< of the program's own
};

/// A whole program, for main to return: `train`, `parity`, `plan`, `replay`, `schedule`,
/// `checkpoint inspect`, `verify` and `flags` of the task, on the processes that mpirun or srun
/// started or on threads of this one, with flags, configuration files, checkpoints, metrics and
/// signals. Errors become exit codes and one report.
int program(int argc, char** argv, ProgramOptions options);

/// Ranks as --comm says: processes, or threads of this process. `body` on each.
void on_ranks(const LaunchOptions& o, int& argc, char**& argv,
              const std::function<void(World&)>& body);

}  // namespace triax::parallel
