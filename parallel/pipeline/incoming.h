#pragma once
#include <deque>
#include <functional>
#include <map>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"

namespace triax::parallel {

/// One micro-batch's activation where it passes from one virtual stage to the next.
struct Boundary {
  Shape shape;
  DType dtype = f32;
  bool operator==(const Boundary&) const = default;
};
/// By cut, in order; a single one stands for all cuts.
using Boundaries = std::vector<Boundary>;

/// What one stage receives in a run, channel by channel, in the order of its list. A receive is
/// posted when the one before it on its channel has arrived and was taken, the first at once: what
/// arrives while the stage computes does not wait for it.
class Incoming {
 public:
  struct Ends {
    std::function<Communicator&(const Handover&)> channel;
    std::function<const Boundary&(const Handover&)> boundary;
    /// On GPUs false: a transfer that waits for its peer there holds up those queued after it, so a
    /// receive is posted when it is needed.
    bool ahead = true;
  };
  Incoming() = default;
  Incoming(const std::vector<Handover>& all, Ends ends);
  /// Waits for the next of its channel, which is `what`.
  Tensor take(const Handover& what);

 private:
  struct Line {
    std::deque<Handover> rest;
    Tensor x;  // on its way
    Work work;
  };
  void post(Communicator& from, Line& line);

  Ends ends_;
  std::map<Communicator*, Line> lines_;
};

}  // namespace triax::parallel
