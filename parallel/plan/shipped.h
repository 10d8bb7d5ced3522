#pragma once
#include <map>
#include <string>

namespace triax::parallel {

/// The texts of parallel/plan/hardware/*.toml by name, as they were when the library was built.
const std::map<std::string, std::string>& shipped_hardware();

}  // namespace triax::parallel
