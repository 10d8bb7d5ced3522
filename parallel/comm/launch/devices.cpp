#include "parallel/comm/launch/devices.h"

#include <charconv>
#include <string_view>

#include "core/check.h"
#include "core/files.h"
#include "parallel/comm/launch/world.h"

namespace triax::parallel {

Device device_named(const std::string& text) {
  if (text == "cpu") return cpu;
  if (text == "cuda") return {Device::Kind::cuda, WorldOptions::own_gpu};
  std::string_view digits = text;
  if (int index = -1; digits.starts_with("cuda:")) {
    digits.remove_prefix(5);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    if (error == std::errc() && end == digits.data() + digits.size() && index >= 0)
      return {Device::Kind::cuda, index};
  }
  fail(Exit::config, "device `{}`\n  Valid: cpu, cuda, and cuda:N for GPU N, from 0.",
       printable(text));
}

}  // namespace triax::parallel
