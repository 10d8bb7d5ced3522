#pragma once
#include <string>
#include <vector>

#include "triax/core/error.h"
#include "triax/parallel/comm/call.h"

namespace triax::parallel {

/// Says what a communicator carries. On a GPU a transfer holds processors until its peers come. All
/// groups of a rank have to fit beside each other: world, those of a mesh and statistics take 1/8
/// each, the channels of a pipeline 1/4 together.
struct Traffic {
  int part = 8;           ///< of a GPU's processors, 1/part at most
  bool messages = false;  ///< between its two ranks, which may begin them in different orders
};

/// The ranks that form a communicator, and its name in messages.
struct Group {
  std::string name = "world";
  std::vector<int> members;  ///< world ranks, by rank in this group
  int rank = 0;              ///< of this rank
  Traffic traffic = {};
  /// Seconds that an operation may wait for its peers, while this process is not suspended, before
  /// it is Error 72. Default: the environment variable TRIAX_TIMEOUT, else ten minutes.
  double time_limit = default_time_limit();
  static double default_time_limit();

  /// Returns the group of all ranks, as rank `rank` sees it.
  static Group world(int ranks, int rank, double time_limit = default_time_limit());

  int size() const { return int(members.size()); }
  /// `tp {0, 1}`.
  std::string str() const;
};

/// A rank's call; `rank` counts within the group.
struct Called {
  int rank;
  Call call;
};

/// Returns Error 76: ranks of a group made different calls as their `number`th (from 1; 0 for a
/// send and its receive).
Error disagreement(const Group& group, int64_t number, const Called& a, const Called& b);
/// Returns Error 72: the time limit passed while `missing` ranks of the group did not come.
Error no_progress(const Group& group, const Call& call, const std::vector<int>& missing);

}  // namespace triax::parallel
