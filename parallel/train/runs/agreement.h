#pragma once
#include <map>
#include <string>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// Ranks that were told different things would train no model at all. Each brings what it was told:
/// settings, data, parameters, its program, by name. Collective. Throws Error 78 on every rank with
/// the first line that differs.
void check_agreement(Communicator& ranks, const std::map<std::string, std::string>& mine);

/// Tells builds of this program apart: the linker's build id of the executable, in hexadecimal.
/// `unknown` if it has none.
std::string build_id();

}  // namespace triax::parallel
