#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "parallel/comm/call.h"

namespace triax::parallel {

/// Which ranks form a communicator, and what it is called in messages.
struct Group {
  std::string name = "world";
  std::vector<int> members;  ///< world ranks, by rank in this group
  int rank = 0;              ///< mine
  /// How long an operation may wait for its peers, while this process is not suspended, before it
  /// is Error 72. Default: the environment variable TRIAX_TIMEOUT, else ten minutes.
  double time_limit = default_time_limit();
  static double default_time_limit();

  /// All ranks, as number `rank` of them sees it.
  static Group world(int ranks, int rank, double time_limit = default_time_limit());

  int size() const { return int(members.size()); }
  /// `tp {0, 1}`.
  std::string str() const;
};

/// What one rank called; `rank` within the group.
struct Called {
  int rank;
  Call call;
};

/// Error 76: ranks of a group called different things as their `number`th call (from 1; 0 for a
/// send and its receive).
Error disagreement(const Group& group, int64_t number, const Called& a, const Called& b);
/// Error 72: the time limit passed while `missing` ranks of the group did not come.
Error no_progress(const Group& group, const Call& call, const std::vector<int>& missing);

}  // namespace triax::parallel
