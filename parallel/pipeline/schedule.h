#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace triax::parallel {

/// One step of a stage: a pass of one micro-batch through one chunk.
struct Action {
  enum Kind : uint8_t {
    forward,
    backward,         ///< the gradients of the input and of the weights
    backward_input,   ///< the gradient of the input alone: the stage before waits for it
    backward_weight,  ///< the gradients of the weights, put off: nobody waits for them
  };
  Kind kind = forward;
  int chunk = 0, micro = 0;
  bool operator==(const Action&) const = default;
};
using Actions = std::vector<Action>;

/// `forward`, `backward`, `backward_input`, `backward_weight`.
const char* name(Action::Kind kind);
/// Like `F3b`, the forward of micro-batch 3 through the second chunk; F, B, I, W by Action::Kind.
std::string label(const Action& action, int chunks);
/// `forward of micro-batch 3, chunk 1`.
std::string str(const Action& action);

/// A model cut into stages * chunks pieces, the virtual stages: stage s holds the pieces
/// s, stages + s, 2 * stages + s, ..., its chunks. A micro-batch passes the virtual stages in
/// order, round the ring of stages once per chunk.
struct PipelineShape {
  int stages = 1, chunks = 1, micros = 1;
  int virtual_stages() const { return stages * chunks; }
  int virtual_stage(int stage, int chunk) const { return chunk * stages + stage; }
  bool operator==(const PipelineShape&) const = default;
};

/// A schedule is data: the list of what `stage` does, in order. A pure function of its arguments;
/// `check_schedule` says whether one is right, and any that is can be run. Those below throw
/// Error 78 for a shape that they do not fit.
using Schedule = std::function<Actions(const PipelineShape& shape, int stage)>;

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

/// Every backward of `whole` in its two halves, that of the weights `delay` >= 0 backwards later.
Actions split_backward(const Actions& whole, int delay);

/// 1F1B with the weights' gradients put off into what was its bubble: a third of it is left, with
/// at most `stages` micro-batches live (ZB-H1, Qi et al. 2023, section 2). One chunk a stage.
Actions zb_h1(const PipelineShape& shape, int stage);

/// The same over several chunks.
Actions zb_interleaved(const PipelineShape& shape, int stage);

/// No backward: validation and sampling.
Actions forward_only(const PipelineShape& shape, int stage);

/// The lists of all stages. Throws Error 78 unless the shape has at least one of each, and for an
/// empty function.
std::vector<Actions> lists_of(const Schedule& schedule, const PipelineShape& shape);

/// `gpipe`, `1f1b`, `interleaved`, `zb-h1`, `zb-interleaved`.
std::vector<std::string> schedule_names();

/// The schedule of that name. Throws Error 78 that lists the names.
Schedule schedule_named(const std::string& name);

/// What passes between neighbouring virtual stages.
struct Handover {
  enum Kind : uint8_t { activation, gradient };
  Kind kind = activation;
  int from = 0, to = 0;  ///< virtual stages
  int micro = 0;
  auto operator<=>(const Handover&) const = default;
};

/// `activation of micro-batch 3 from virtual stage 4 to 5`.
std::string str(const Handover& handover);

/// What `action` of `stage` needs before it starts, and what it hands on when it is done. Nothing
/// at the ends of the model. On a ring of one stage it stays in place.
std::optional<Handover> received_by(const PipelineShape& shape, int stage, const Action& action);
std::optional<Handover> sent_by(const PipelineShape& shape, int stage, const Action& action);

/// Link l of the ring joins stage l and stage (l + 1) % stages: activations pass it upwards,
/// gradients downwards. Each link has a channel of its own for either direction: with fewer, a
/// send waits behind another that cannot be received yet, and schedules deadlock.
int link_of(const PipelineShape& shape, const Handover& handover);

}  // namespace triax::parallel
