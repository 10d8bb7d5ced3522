#pragma once
#include <functional>
#include <string>
#include <vector>

#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/settings/command_line.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {

/// The parts that make a program of a model and its data.
struct ProgramOptions {
  std::string name;         ///< the name of the executable
  std::string what;         ///< one sentence for --help
  TrainOptions train = {};  ///< defaults; schedules of the program's own are added here
  /// The options of the model and the data, bound to the program's. `--init` takes those of the
  /// group `Model` from a checkpoint.
  Settings settings = {};
  /// Is called with `--init`, before the task is made: with the path of the checkpoint, or of its
  /// run directory, and its other content.
  std::function<void(const std::string& path, const CheckpointState&)> init = {};
  /// Returns the checkpoint, or run directory, to take for what `--init` names: makes one of
  /// weights in another form. None: only checkpoints are taken.
  std::function<std::string(const std::string& path)> import = {};
  /// Makes the task, once all options are read: on every rank, or once for ranks that are threads.
  std::function<Task()> task;
  std::function<void(Trainer&)> prepare = {};  ///< called on every rank before training: callbacks
  /// Sets smaller defaults for `parity`, which trains the task several times, before its flags are
  /// read.
  std::function<void(TrainOptions&)> parity_defaults = {};
  /// Is called before the flags of `plan` are read: sets a micro-batch, which it otherwise looks
  /// for, or that the task needs no values, only shapes.
  std::function<void(TrainOptions&)> plan_defaults = {};
  /// Is called before the flags of `evaluate` are read: lets the task hold all of its data out.
  std::function<void()> evaluate_defaults = {};
  Settings evaluate_settings = {};  ///< flags that `evaluate` alone has
  /// A setting without default in `plan`, if that is for more ranks than this machine's.
  struct PlanNeed {
    std::string name, example;
    std::string or_else = {};  ///< another setting that decides it too
  };
  std::vector<PlanNeed> plan_needs = {};
  std::vector<Verb> verbs = {};  ///< the program's own
};

/// Runs a whole program, for main to return: `train`, `evaluate`, `parity`, `plan`, `replay`,
/// `schedule`, `checkpoint inspect`, `verify` and `flags` of the task, on the processes that mpirun
/// or srun started or on threads of this one, with flags, configuration files, checkpoints, metrics
/// and signals. Errors become exit codes and one report.
int program(int argc, char** argv, ProgramOptions options);

/// Runs `body` on ranks as --comm says: processes, or threads of this process.
void on_ranks(const LaunchOptions& o, int& argc, char**& argv,
              const std::function<void(World&)>& body);

}  // namespace triax::parallel
