#pragma once
#include <string>

namespace triax::parallel {

/// Throws Error 73, which names the flag, if no file can be made at `path`: for a check before long
/// work whose result goes there. Leaves nothing there.
void check_output(const std::string& flag, const std::string& path);

}  // namespace triax::parallel
