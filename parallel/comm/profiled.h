#pragma once
#include <functional>

#include "parallel/comm/call.h"
#include "parallel/comm/group.h"
#include "parallel/comm/work.h"

namespace triax::parallel {

/// Starts an operation of a rank that has a profile: the call is a slice there, and so is each wait
/// for its end; from start to end it is one of Profile::operations().
Work profiled(const Group& group, Transfer t, const std::function<Work(Transfer t)>& start);

}  // namespace triax::parallel
