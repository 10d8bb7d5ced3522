#pragma once
#include <string>

namespace triax::parallel {

/// Before long work whose result goes to a file: throws Error 73, which names the flag, if none
/// could be made at `path`. Leaves nothing there.
void check_output(const std::string& flag, const std::string& path);

}  // namespace triax::parallel
