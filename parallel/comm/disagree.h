#pragma once
#include <vector>

#include "core/error.h"
#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// What one rank called; `rank` within the group.
struct Called {
  int rank;
  Call call;
};

/// Error 76: ranks of a group called different things as their `number`th call (from
/// 1; 0 for a send and its receive).
Error disagreement(const Group& group, int64_t number, const Called& a, const Called& b);
/// Error 72: the time limit passed while `missing` ranks of the group did not come.
Error no_progress(const Group& group, const Call& call, const std::vector<int>& missing);

}  // namespace triax::parallel
