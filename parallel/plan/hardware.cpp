#include <strings.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "core/check.h"
#include "core/files.h"
#include "parallel/plan/plan.h"

namespace triax::parallel {
namespace {

// Data sheets of the SXM modules, without sparsity; a 400 Gbit/s network card for each GPU.
constexpr Hardware known[] = {
    {"cpu", 8e9, 200e9, 1.5e12, 20e9, 5e9, 1.25e9, 10e-6, Hardware::Host::same},
    {"a100", 80e9, 156e12, 312e12, 2.04e12, 300e9, 25e9, 10e-6},
    {"h100", 80e9, 494e12, 989e12, 3.35e12, 450e9, 50e9, 10e-6},
    {"h200", 141e9, 494e12, 989e12, 4.8e12, 450e9, 50e9, 10e-6},
};

struct Unit {
  const char* name;
  double bytes;
};
constexpr Unit units[] = {{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1}};

}  // namespace

std::vector<std::string> hardware_names() {
  std::vector<std::string> names;
  for (const Hardware& h : known) names.push_back(h.name);
  return names;
}

const Hardware& hardware_named(const std::string& name) {
  auto found = std::find_if(std::begin(known), std::end(known),
                            [&](const Hardware& h) { return name == h.name; });
  if (found != std::end(known)) return *found;
  fail(Exit::config, "hardware `{}` is not known\n  Valid: {}.", printable(name),
       join(hardware_names(), ", "));
}

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
