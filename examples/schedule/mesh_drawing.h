#pragma once
#include <string>

#include "parallel/mesh.h"

namespace triax::schedule {

/// The ranks of a mesh and the groups in which they talk, as a file in SVG: stages from left to
/// right, replicas from top to bottom.
std::string as_svg(const parallel::MeshShape& shape);

}  // namespace triax::schedule
