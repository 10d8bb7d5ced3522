#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace triax::parallel {

/// One step of a stage: a pass of one micro-batch through one chunk, or where what its forward has
/// kept for backward goes to host memory (offload) and comes back (reload). The copies take none of
/// the stage's compute time: each direction has a lane of its own.
struct Action {
  enum Kind : uint8_t {
    forward,
    backward,         ///< the gradients of the input and of the weights
    backward_input,   ///< the gradient of the input alone: the stage before waits for it
    backward_weight,  ///< the gradients of the weights, deferred: nobody waits for them
    offload,  ///< waits for the copy, begun after the forward, and frees the device's memory
    reload,   ///< takes device memory and begins the copy back: the backward waits for it
  };
  Kind kind = forward;
  int chunk = 0, micro = 0;
  bool operator==(const Action&) const = default;
};
using Actions = std::vector<Action>;

/// True for offload and reload.
inline bool copies(Action::Kind kind) { return kind >= Action::offload; }
/// Returns `forward`, `backward`, `backward_input`, `backward_weight`, `offload`, `reload`.
const char* name(Action::Kind kind);
/// Returns a label: `F3b` is the forward of micro-batch 3 in the second chunk; F, B, I, W, O, R by
/// kind.
std::string label(const Action& action, int chunks);
/// Returns `forward of micro-batch 3, chunk 1`.
std::string str(const Action& action);

/// The assignment of virtual stages to stages. `ring`: stage s holds s, stages + s, 2 * stages + s,
/// ...: a micro-batch goes round the ring of stages once per chunk. `v`: every other chunk runs
/// from the last stage back to the first, so stage s holds s and 2 * stages - 1 - s, and handovers
/// at the turns, on the last stage or the first, stay there.
enum class Placement : uint8_t { ring, v };
/// `ring`, `v`.
const char* name(Placement placement);

/// A model cut into stages * chunks pieces, the virtual stages, which a micro-batch passes in
/// order.
struct PipelineShape {
  int stages = 1, chunks = 1, micros = 1;
  Placement placement = Placement::ring;

  int virtual_stages() const { return stages * chunks; }
  int virtual_stage(int stage, int chunk) const { return chunk * stages + along(chunk, stage); }
  /// Returns the stage that holds a virtual stage.
  int stage_of(int virtual_stage) const {
    return along(virtual_stage / stages, virtual_stage % stages);
  }
  /// Returns the stage that ends the model.
  int last_stage() const { return stage_of(virtual_stages() - 1); }
  bool operator==(const PipelineShape&) const = default;

 private:
  int along(int chunk, int place) const {
    return placement == Placement::v && chunk % 2 == 1 ? stages - 1 - place : place;
  }
};

/// A schedule is data: a stage's list of actions, in order. `make`, a pure function of its
/// arguments, makes the list; any callable of that kind is a schedule. `check_schedule` says
/// whether one is right, and any that is can be run. Those below throw Error 78 for a shape that
/// they do not fit.
struct Schedule {
  std::function<Actions(const PipelineShape& shape, int stage)> make;
  /// Makes the lists of all stages at once, for schedules whose stages depend on each other; else
  /// empty.
  std::function<std::vector<Actions>(const PipelineShape& shape)> all;
  Placement placement = Placement::ring;  ///< of the shapes that it is run on
  int chunks = 1;                         ///< per stage, unless a run says how many

  Schedule() = default;
  template <std::invocable<const PipelineShape&, int> Make>
  requires(!std::same_as<Make, Schedule>)
      Schedule(Make list, Placement where = Placement::ring, int chunks_of_stage = 1)
      : make(std::move(list)), placement(where), chunks(chunks_of_stage) {}

  Actions operator()(const PipelineShape& shape, int stage) const { return make(shape, stage); }
};

/// All forwards, then all backwards: every micro-batch is live at once (GPipe, Huang et al. 2019).
Actions gpipe(const PipelineShape& shape, int stage);

/// Fill the pipeline, alternate one forward and one backward, drain: the bubble of gpipe, with at
/// most stages - stage micro-batches live (PipeDream-Flush, Narayanan et al. 2021, section 2.2).
/// One chunk a stage.
Actions one_f_one_b(const PipelineShape& shape, int stage);

/// 1F1B over several chunks a stage, which divides the bubble by `chunks` for more traffic and more
/// live micro-batches (Narayanan et al. 2021, section 2.2). Micro-batches go round the ring in
/// groups of at least `stages`; any number of them does.
Actions interleaved(const PipelineShape& shape, int stage);

/// Splits every backward of `whole` in two halves, the weights' half `delay` >= 0 backwards later.
Actions split_backward(const Actions& whole, int delay);

/// 1F1B with the weights' gradients deferred into its bubble: a third of it is left, with at most
/// `stages` micro-batches live (ZB-H1, Qi et al. 2023, section 2). One chunk a stage.
Actions zb_h1(const PipelineShape& shape, int stage);

/// ZB-H1 over several chunks a stage.
Actions zb_interleaved(const PipelineShape& shape, int stage);

/// ZB-2p (Qi et al. 2023, sections 2.2 and 5): twice the forwards ahead, weight gradients deferred
/// for longer: a stage works from its first action to its last if there are at least 3 * stages
/// micro-batches. At most 2 * stages - 1 micro-batches wait for their backward_input, and about as
/// many more for their backward_weight, of which the paper counts half. One chunk a stage.
Actions zb_2p(const PipelineShape& shape, int stage);

/// Two chunks a stage in a V, so that a stage with many live micro-batches in one has few in the
/// other. With at least 2 * stages - 1 micro-batches, and if a forward and both halves of a
/// backward take the same time, a stage works from its first action to its last, with the memory of
/// 1F1B: 2 * stages live, each of half a stage (ZB-V; Qi et al., "Pipeline Parallelism with
/// Controllable Memory", 2024).
Actions zb_v(const PipelineShape& shape, int stage);

/// Building blocks that repeat, two chunks a stage in a V (Qi et al. 2024): the lists of all
/// stages. A stage holds at most (stages + 2) / 2 micro-batches with `v_half`, rounded down, and
/// (stages + 4) / 3 with `v_min`. If a forward and both halves of a backward take the same time,
/// the bubble is about a half and two thirds of that of 1F1B.
std::vector<Actions> v_half(const PipelineShape& shape);
std::vector<Actions> v_min(const PipelineShape& shape);
/// Likewise with whole backwards: about two thirds of the activations of 1F1B, and no larger
/// bubble.
std::vector<Actions> one_f_one_b_v(const PipelineShape& shape);

/// DualPipe (DeepSeek-AI, "DeepSeek-V3 Technical Report", 2024, section 3.2.1) with one copy of the
/// model in a V, at most 2 * stages + 1 live. A forward and a backward of different chunks stand in
/// pairs, made to overlap; here they run one after the other.
Actions dualpipev(const PipelineShape& shape, int stage);

/// Forwards alone: validation and sampling.
Actions forward_only(const PipelineShape& shape, int stage);

/// Checks a schedule's arguments: throws Error 78, in the name of `who`, unless the shape has at
/// least one stage, chunk and micro-batch; and unless `stage` is one of its stages.
void check_arguments(const char* who, const PipelineShape& shape, int stage);

/// Returns the lists of all stages. Throws Error 78 unless the shape has at least one of each, and
/// for an empty function.
std::vector<Actions> lists_of(const Schedule& schedule, const PipelineShape& shape);

/// Returns `gpipe`, `1f1b`, `interleaved`, `zb-h1`, `zb-interleaved`, `zb-2p`, `1f1b-v`, `v-min`,
/// `v-half`, `zb-v`, `dualpipev`.
std::vector<std::string> schedule_names();

/// Returns the schedule of that name. Throws Error 78 that lists the names.
Schedule schedule_named(const std::string& name);

/// A tensor that passes between neighbouring virtual stages.
struct Handover {
  enum Kind : uint8_t { activation, gradient };
  Kind kind = activation;
  int from = 0, to = 0;  ///< virtual stages
  int micro = 0;
  auto operator<=>(const Handover&) const = default;
};

/// Returns `activation of micro-batch 3 from virtual stage 4 to 5`.
std::string str(const Handover& handover);

/// Returns the handover that `action` of `stage` needs before it starts; sent_by() the one that it
/// makes when it is done. None at the ends of the model.
std::optional<Handover> received_by(const PipelineShape& shape, int stage, const Action& action);
std::optional<Handover> sent_by(const PipelineShape& shape, int stage, const Action& action);

/// True if it stays on its stage: where there is one stage, and at the turns of a V.
bool stays(const PipelineShape& shape, const Handover& handover);

/// Returns the link that a handover passes: activations one way, gradients the other. Each link has
/// a channel for either direction: with fewer, a send waits behind another that cannot be received
/// yet, and schedules deadlock. On a ring link l joins stage l and stage (l + 1) % stages, for all
/// chunks; in a V it joins the virtual stages l and l + 1.
int link_of(const PipelineShape& shape, const Handover& handover);

}  // namespace triax::parallel
