#include "triax/core/cpu/tiled.h"

namespace triax::host::TRIAX_LEVEL::TRIAX_SQUARES {

Tiled::~Tiled() = default;
const char* Tiled::name() const { return TRIAX_LEVEL_NAME; }

Backend& instance();
Backend& instance() {
  static Tiled tiled;
  return tiled;
}

}  // namespace triax::host::TRIAX_LEVEL::TRIAX_SQUARES
