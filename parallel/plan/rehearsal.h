#pragma once
#include <array>
#include <string>
#include <vector>

#include "core/memory.h"
#include "core/meta.h"
#include "parallel/comm/launch/world.h"
#include "parallel/train/options.h"
#include "parallel/train/task.h"

namespace triax::parallel {

/// What one rank holds and sends.
struct Demand {
  int64_t peak = 0;        ///< bytes of tensors, at their highest
  int64_t parameters = 0;  ///< elements of this rank's stage, all its ranks together
  std::vector<std::string> layers = {};
  std::array<int64_t, memory::kinds> peaks{};  ///< of each kind
  Ledger::Line tp, dp, links;                  ///< of one step; dp up to the gradients
};

/// Runs one Step of `o`, resolved and checked, on batches like `like`. On a world of MetaComm
/// nothing is computed and the answer is there at once; on any other it is what the run measured.
/// Collective.
Demand rehearse(const Build& build, const nn::Batch& like, const StepOptions& o,
                Communicator& world);

/// The first rank of each stage, each alone on the meta device: ranks of a stage ask for the same.
/// `on`: what the ranks will run on.
std::vector<Demand> foresee(const Build& build, const nn::Batch& like, const StepOptions& o,
                            Device::Kind on = Device::Kind::cpu);
/// What to rehearse, and what the ranks will run on.
struct StagesOn {
  Device::Kind on = Device::Kind::cpu;
  std::vector<int> stages;
  double enough = 0;  ///< stop after a stage that holds more bytes
};
/// What a model is, what a micro-batch is like, and what it means to the model on this mesh.
struct Subject {
  const Build& build;
  const nn::Batch& like;
  Facts facts;
};
/// The same of some stages and of memory alone, in their order.
std::vector<Demand> foresee_peaks(const Subject& subject, const StepOptions& o, const StagesOn& of);
/// The same, measured: runs one step on a mesh of threads.
std::vector<Demand> measure(const Build& build, const nn::Batch& like, const StepOptions& o);

struct Preview {
  std::string text;  ///< a line for each stage: its layers, parameters and peak
  std::string
      memory;  ///< of a rank of the fullest stage: `9 MB: activations 5 MB, parameters 2 MB`
};
/// What a run will hold. Throws Error 71 if there is less free memory than the ranks on this
/// machine (or GPU) take, which stands for all machines.
Preview preview(const Task& task, const TrainOptions& o, const World& world);
/// What to do then.
inline constexpr const char* less_memory =
    "Try a smaller model or --micro-batch, --recompute block, --zero 3 --offload params "
    "--offload-dir DIR, or --zero 3 on more machines.";

}  // namespace triax::parallel
