#pragma once
#include <map>
#include <string>

namespace triax::parallel {

/// Returns the texts of parallel/plan/hardware/*.toml by name, as of the library's build.
const std::map<std::string, std::string>& shipped_hardware();

}  // namespace triax::parallel
