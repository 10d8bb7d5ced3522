#pragma once
#include <cstdint>
#include <string>

namespace triax {

/// The place where bytes live and kernels run.
struct Device {
  enum class Kind : uint8_t {
    cpu,
    cuda,
    meta  ///< shapes without bytes, for programs that plan (core/meta/meta.h)
  };
  Kind kind = Kind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
inline constexpr Device cpu{};
inline constexpr Device meta_device{Device::Kind::meta};

/// `cpu` or `cuda:0`.
std::string str(Device d);

}  // namespace triax
