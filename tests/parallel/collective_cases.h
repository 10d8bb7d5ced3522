#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

namespace triax::parallel {

/// One test of every transport, run by all ranks of a world. Throws if something is wrong.
struct CollectiveCase {
  std::string name;
  std::function<void(Communicator& world)> run;
};
const std::vector<CollectiveCase>& collective_cases();

}  // namespace triax::parallel
