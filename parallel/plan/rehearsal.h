#pragma once
#include <array>
#include <string>
#include <vector>

#include "triax/core/memory.h"
#include "triax/core/meta/meta.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {

/// The memory and traffic of one rank.
struct Demand {
  int64_t peak = 0;        ///< the highest bytes of tensors
  int64_t parameters = 0;  ///< elements of this rank's stage, over all its ranks
  std::vector<std::string> layers = {};
  std::array<int64_t, memory::kinds> peaks{};  ///< of each kind
  /// The traffic of one step; dp holds that of gradients, over all ranks that hold the same.
  Ledger::Line tp, dp, cp, ep, links;
};

/// Rehearses the first rank of each stage, each alone on the meta device: ranks of a stage need the
/// same. `on`: the kind of device that the ranks will run on.
std::vector<Demand> foresee(const Build& build, const nn::Batch& like, const StepOptions& o,
                            Device::Kind on = Device::Kind::cpu);
/// The stages to rehearse, and the kind of device that the ranks will run on.
struct StagesOn {
  Device::Kind on = Device::Kind::cpu;
  std::vector<int> stages;
  double enough = 0;  ///< stop after a stage that holds more bytes
};
/// A model, a micro-batch like its own, and the facts of both on this mesh.
struct Subject {
  const Build& build;
  nn::Batch like;
  Facts facts;
};
/// Returns it with the facts of `o`'s mesh.
Subject subject_of(const Build& build, const nn::Batch& like, const StepOptions& o);

/// Sees a rehearsal from inside: in front of its step, where it can take others with the same
/// input, and right behind it, when transfers of new weights may still be under way.
struct RehearsalObserver {
  std::function<void(Step&, const StepInput&)> before = {};
  std::function<void()> after = {};
};
/// Runs one Step of `o`, resolved and checked, on batches like the subject's. On the meta device
/// nothing is computed; on any other it is measured. Collective.
Demand rehearse(const Subject& of, const StepOptions& o, Communicator& world,
                const RehearsalObserver& observer = {});

/// Rehearses some stages, in their order, for memory alone.
std::vector<Demand> foresee_peaks(const Subject& subject, const StepOptions& o, const StagesOn& of);
/// Measures: runs one step on a mesh of threads.
std::vector<Demand> measure(const Build& build, const nn::Batch& like, const StepOptions& o);

struct Preview {
  std::string text;  ///< a line for each stage: its layers, parameters and peak
  std::string
      memory;  ///< of a rank of the fullest stage: `9 MB: activations 5 MB, parameters 2 MB`
};
/// Returns a preview of a run's memory. Throws Error 71 if the ranks on this machine (or GPU),
/// which stands for all machines, take more than its free memory.
Preview preview(const Task& task, const TrainOptions& o, const World& world);
/// The cure that an error about too little memory names.
inline constexpr const char* less_memory =
    "Try a smaller model or --micro-batch, --recompute block, --zero 3 --offload params "
    "--offload-dir DIR, or --zero 3 on more machines.";

}  // namespace triax::parallel
