#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "triax/parallel/comm/communicator.h"
#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// The channels of this rank's stage: a communicator of two ranks for each link that ends here
/// (`link_of`) and kind of handover.
class Links {
 public:
  Links() = default;
  /// Makes the channels, collective over `stages`, whose ranks are the stages of `shape`.
  Links(Communicator& stages, const PipelineShape& shape);
  /// Returns the channel of a handover from or to this stage.
  Communicator& channel(const Handover& what) const;
  std::vector<const Communicator*> all() const;

 private:
  PipelineShape shape_;
  std::map<std::pair<int, Handover::Kind>, std::unique_ptr<Communicator>> channels_;
};

/// The activation of one micro-batch between two virtual stages.
struct Boundary {
  Shape shape;
  DType dtype = f32;
  bool operator==(const Boundary&) const = default;
};
/// Boundaries by cut, in order; a single one stands for all cuts.
using Boundaries = std::vector<Boundary>;
/// Returns that of a handover.
inline const Boundary& boundary_of(const Boundaries& all, const Handover& what) {
  return all[all.size() == 1 ? 0 : size_t(std::min(what.from, what.to))];
}

/// The activations and gradients that one stage receives in a run, channel by channel, in the order
/// of its list. A receive is posted when the one before it on its channel has arrived and was
/// taken, the first at once, so that transfers overlap computation.
class Incoming {
 public:
  Incoming() = default;
  /// `links` and `boundaries` outlive it. Not `ahead` on GPUs: a transfer that waits for its peer
  /// holds processors there, so a receive is posted only when it is needed.
  Incoming(const std::vector<Handover>& all, const Links& links, const Boundaries& boundaries,
           bool ahead);
  /// Waits for the next tensor of its channel, which is `what`, and returns it.
  Tensor take(const Handover& what);

 private:
  struct Line {
    std::deque<Handover> rest;
    Tensor x;  // being received
    Work work;
  };
  void post(Communicator& from, Line& line);

  const Links* links_ = nullptr;
  const Boundaries* boundaries_ = nullptr;
  bool ahead_ = true;
  std::map<Communicator*, Line> lines_;
};

}  // namespace triax::parallel
