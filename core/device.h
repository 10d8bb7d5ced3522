#pragma once
#include <cstdint>
#include <string>

namespace triax {

/// Where bytes live and kernels run.
struct Device {
  enum class Kind : uint8_t { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
inline constexpr Device cpu{};

/// `cpu` or `cuda:0`.
std::string str(Device d);

}  // namespace triax
