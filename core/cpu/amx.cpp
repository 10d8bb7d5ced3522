#include "core/cpu/amx.h"

namespace triax::host::TRIAX_LEVEL {

Amx::~Amx() = default;
const char* Amx::name() const { return "cpu amx"; }

Backend& amx_instance();
Backend& amx_instance() {
  static Amx amx;
  return amx;
}

}  // namespace triax::host::TRIAX_LEVEL
