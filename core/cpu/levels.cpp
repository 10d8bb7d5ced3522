#include "core/cpu/levels.h"

#include <algorithm>
#include <cstdlib>

#include "core/check.h"

// One backend per instruction level, each made by a file compiled for that level (see cpu.h).
namespace triax::host {
namespace baseline {
Backend& instance();
}
#if defined(__x86_64__)
namespace avx2 {
Backend& instance();
}
namespace avx512 {
Backend& instance();
}
#endif

namespace {

struct Level {
  const char* name;
  bool runs_here;
  Backend& (*instance)();
};

// Feature bits, never the model number: virtual machines report odd ones.
const std::vector<Level>& all_levels() {
  static const std::vector<Level> all = [] {
    std::vector<Level> v{{"baseline", true, &baseline::instance}};
#if defined(__x86_64__)
    __builtin_cpu_init();
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    v.push_back({"avx2", avx2, &avx2::instance});
    v.push_back({"avx512", avx512, &avx512::instance});
#endif
    return v;
  }();
  return all;
}

}  // namespace

std::vector<std::string> levels() {
  std::vector<std::string> names;
  for (auto& level : all_levels())
    if (level.runs_here) names.push_back(level.name);
  return names;
}

Backend& backend_of(const std::string& name) {
  for (auto& level : all_levels())
    if (level.name == name && level.runs_here) return level.instance();
  fail(Exit::config, "cpu: instruction level '{}' asked for; this machine has {}", name,
       fmt::join(levels(), ", "));
}

Backend& backend() {
  static Backend& chosen = [&]() -> Backend& {
    const char* forced = std::getenv("TRIAX_CPU_LEVEL");
    return backend_of(forced ? forced : levels().back());
  }();
  return chosen;
}

}  // namespace triax::host
