#include "triax/parallel/settings/bytes.h"

#include <strings.h>

#include <charconv>
#include <fstream>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::parallel {
namespace {

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit units[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}};

}  // namespace

double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string word; file >> word;)
    if (double kib = 0; word == "MemAvailable:" && file >> kib) return 1024 * kib;
  return 0;
}

double bytes_of(const std::string& text) {
  double value = 0;
  const char* last = text.data() + text.size();
  auto [end, error] = std::from_chars(text.data(), last, value);
  while (end < last && *end == ' ') ++end;
  if (error == std::errc() && value > 0)
    for (const Unit& unit : units)
      if (::strcasecmp(end, unit.name) == 0 && value * unit.bytes < 1e18) return value * unit.bytes;
  fail(Exit::config, "memory `{}`\n  Expected a number and a unit: B, KB, MB, GB or TB, like 80GB.",
       printable(text));
}

std::string show_bytes(double bytes) {
  for (const Unit& unit : units)
    if (bytes >= unit.bytes) return fmt::format("{:.3g} {}", bytes / unit.bytes, unit.name);
  return "0 B";
}

}  // namespace triax::parallel
