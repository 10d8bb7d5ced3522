#pragma once
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/plan/hardware.h"
#include "triax/parallel/train/model/task.h"
#include "triax/parallel/train/options/options.h"

namespace triax::parallel {

/// True if the schedule is one of the library's own (schedule_names). They take any number of
/// micro-batches, and when the pipeline is full, each further one costs as much as those before it.
/// That is not known of a program's own schedules, and a schedule from a file has one shape.
bool is_built_in(const StepOptions& o);

/// Returns the micro-batches after which this stage holds no more than before: all of a step's for
/// gpipe, which keeps every one, and for schedules that are not built in. `o` is resolved.
int64_t filling(const StepOptions& o, int stage);

/// The seconds of one step, by their use.
struct StepTime {
  double compute = 0;   ///< kernels of the slowest stage, all micro-batches
  double tensor = 0;    ///< its collectives of tp and cp that nothing hides
  double handover = 0;  ///< its activations and gradients to and from other stages
  double bubble = 0;    ///< waiting in the pipeline
  double data = 0;      ///< collectives of dp that nothing hides
  double update = 0;    ///< of the weights, by AdamW
  double total() const { return compute + tensor + handover + bubble + data + update; }
};

/// The cost of a schedule.
struct Bubble {
  double idle = 0;         ///< step time less work, in times of one micro-batch on a stage
  std::vector<Kept> kept;  ///< per stage
};

/// The seconds that kernels of a step take on a rank: triax's own. A derived class times the steps
/// of another framework, to compare them with what was measured.
class KernelTimes {
 public:
  virtual ~KernelTimes() = default;
  /// Returns the seconds of work on the device.
  virtual double device(const KernelWork& work, const Hardware& h, DType dtype) const {
    return h.seconds(work, dtype);
  }
  /// Returns the host's seconds to start it, on each of `tp` ranks.
  virtual double host(const KernelWork& work, const Hardware& h, int /*tp*/) const {
    return h.launches(work);
  }
  /// Returns the seconds to add so many gradients of a micro-batch, outside of backward's kernels.
  virtual double gradients(double /*elements*/, const Hardware&, DType) const { return 0; }
  /// True if collectives overlap kernels, as those of triax do.
  virtual bool overlap() const { return true; }
};

/// Returns a rank's share of trained elements that those who hold them share out.
double shared_out(const MeshShape& mesh, const Elements& elements);

/// Predicts step times of one model on one kind of hardware. The work of every layer is that of
/// kernels on the meta device (probe), so it is remembered by what it depends on.
///
/// A stage takes its layers' forward and backward, for which the host has to start their kernels,
/// what backward computes again, collectives of tp, and two handovers for each chunk, of which each
/// rank of tp is taken to send its share. A step takes as long as its schedule, simulated with
/// these times of every chunk; half of a backward's products can be deferred.
/// Collectives that GPUs make, or network cards, overlap kernels; those between CPUs of a
/// node do not, since their cores move the bytes. Gradients of dp travel behind two thirds of the
/// last micro-batch, and while the slowest stage still works. With ZeRO 2 and 3 a micro-batch takes
/// at least its collectives. The new weights of ZeRO 1 and 2 are gathered behind the first forward,
/// but for those of one layer. A collective of tp that is cut in pieces is hidden by the kernels
/// between its start and the wait for it; whole ones are counted whole. So are those of cp, but for
/// a ring's, which attention hides.
class StepTimes {
 public:
  /// Keeps references to both.
  StepTimes(const Task& task, const Hardware& hardware,
            std::shared_ptr<const KernelTimes> kernels = std::make_shared<KernelTimes>());

  /// Times a step; `o` is resolved and checked. Throws Error 78 if the model cannot be trained so.
  StepTime operator()(const StepOptions& o);
  /// Returns its time without that simulation: the slowest stage for all micro-batches, and the
  /// schedule's idle time for equal stages (forward : input : weight gradients as 1 : 1 : 1, or 1 :
  /// 2 : 1 where blocks are computed again) times what the other stages take on average.
  StepTime estimate(const StepOptions& o);
  /// Returns the cost of its schedule. Throws Error 78 for a shape that the schedule does not fit.
  const Bubble& bubble(const StepOptions& o);
  /// Returns the schedule's lists for so many micro-batches.
  const std::vector<Actions>& lists(const StepOptions& o, int micros);
  /// Returns the facts of a micro-batch on a rank of tp.
  const Facts& facts(const StepOptions& o);
  /// Returns the layers of each virtual stage.
  const std::vector<int64_t>& placement(const StepOptions& o);
  /// Returns the parameters that a rank of each stage holds, in full.
  std::vector<Elements> parameters(const StepOptions& o);
  /// Returns the FLOP of matrix products and attention in a step, without recomputation.
  double model_flop(const StepOptions& o);

 private:
  struct Slot;
  /// Returns the time of a layer's forward or backward. Collectives of tp are started as kernels
  /// are: on GPUs they take no time of those that wait for the host.
  Slot pass(const KernelWork& work, const Ledger::Line& sums, const std::vector<Beat>& beats,
            const StepOptions& o);
  /// Returns the seconds in which a rank only waits for collectives of tp.
  double exposed(const std::vector<Beat>& beats, const StepOptions& o) const;
  /// True if collectives of so many ranks, `stride` apart, overlap kernels.
  bool overlaps(int64_t ranks, int64_t stride) const;
  /// Returns the times of every virtual stage.
  std::vector<Slot> slots(const StepOptions& o);
  /// Returns those of every stage, with its handovers and its collectives of dp.
  std::vector<Slot> by_stage(const std::vector<Slot>& chunks, const StepOptions& o);
  /// Returns the times of a step, but for `bubble`.
  StepTime time(const std::vector<Slot>& stages, const StepOptions& o);
  /// Returns the simulated time of all micro-batches.
  double pipeline(const std::vector<Slot>& chunks, const std::vector<Slot>& stages,
                  const StepOptions& o);
  double handover(const StepOptions& o);
  /// Returns the seconds of collectives of cp, of forward or backward, that nothing hides: a ring
  /// passes all blocks but a rank's own while they are at work.
  double over_rows(const Ledger::Line& sent, const KernelWork& work, const StepOptions& o) const;
  double over_replicas(const MeshShape& m, int64_t calls, double bytes) const;
  /// Returns the seconds of dp's collectives behind the last backward of a stage, of which the
  /// first are `hidden` behind kernels, and those of the gathering in front of the next forward.
  double after_backward(const StepOptions& o, const Slot& s, double hidden) const;

  const Task& task_;
  const Hardware& hardware_;
  std::shared_ptr<const KernelTimes> kernels_;
  using FactsKey = std::pair<ProbeOptions, int64_t>;  // without dp; micro-batch
  static FactsKey key_of(const StepOptions& o);
  std::map<FactsKey, Facts> facts_;
  std::map<std::tuple<FactsKey, int, int, int, Placement, std::string>, std::vector<int64_t>>
      placements_;  ///< a program's own may depend on all of the shape
  std::map<std::tuple<std::string, int, int, int, bool>, Bubble> bubbles_;
  std::map<std::tuple<std::string, int, int, int>, std::vector<Actions>> lists_;
};

}  // namespace triax::parallel
