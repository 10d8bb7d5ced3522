#include "triax/core/cpu/cpu.h"

namespace triax::host::TRIAX_LEVEL {

Cpu::~Cpu() = default;
const char* Cpu::name() const { return TRIAX_LEVEL_NAME; }

Backend& instance();
Backend& instance() {
  static Cpu cpu;
  return cpu;
}

}  // namespace triax::host::TRIAX_LEVEL
