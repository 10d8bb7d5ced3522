#pragma once
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/pipeline/schedule.h"

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

}  // namespace triax::parallel
