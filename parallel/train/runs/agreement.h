#pragma once
#include <map>
#include <string>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// Checks that all ranks were told the same: settings, data, parameters, their program, by name.
/// Otherwise they would train no model at all. Collective. Throws Error 78 on every rank with the
/// first line that differs.
void check_agreement(Communicator& ranks, const std::map<std::string, std::string>& mine);

/// Returns the linker's build id of the executable, in hexadecimal: it tells builds of this program
/// apart. `unknown` if it has none.
std::string build_id();

}  // namespace triax::parallel
