#include "triax/core/cpu/levels.h"

#include <cstdlib>

#include "triax/core/check.h"
#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

// One backend per instruction level, each made by a file compiled for that level (see cpu.h). CMake
// says which there are: TRIAX_CPU_LEVELS.
namespace triax::host {
namespace baseline {
Backend& instance();
}
namespace avx2 {
Backend& instance();
}
namespace avx512 {
Backend& instance();
namespace avx512_bf16 {
Backend& instance();
}
namespace amx {
Backend& instance();
}
}  // namespace avx512

namespace {

struct Level {
  const char* name;
  bool runs_here;
  Backend& (*instance)();
};

#if defined(TRIAX_HAS_AVX512_BF16) || defined(TRIAX_HAS_AMX)
/// Conversions to bf16 and dot products of its pairs.
bool has_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 5);
}
/// True on Intel's processors since Sapphire Rapids, which have sums in f16 as well: there a dot
/// product of pairs takes longer than four fused products of f32.
[[maybe_unused]] bool pairs_are_slow() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __builtin_cpu_is("intel") && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & 1u << 23);
}
#endif
#ifdef TRIAX_HAS_AMX
/// AMX tiles of bf16, once the kernel has granted this process their state (arch_prctl(2)).
bool tiles_granted() {
#if defined(__linux__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned amx_bf16 = 1u << 22, amx_tile = 1u << 24;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & amx_bf16) || !(d & amx_tile)) return false;
  constexpr long request_permission = 0x1023, tile_data = 18;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
#else
  return false;
#endif
}
#endif

// Feature bits, never the model number: virtual machines report odd ones.
const std::vector<Level>& all_levels() {
  static const std::vector<Level> all = [] {
    std::vector<Level> v;
#ifdef TRIAX_HAS_BASELINE
    v.push_back({"baseline", true, &baseline::instance});
#endif
#ifdef __x86_64__
    __builtin_cpu_init();
    [[maybe_unused]] bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    [[maybe_unused]] bool avx512 =
        avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
#endif
#ifdef TRIAX_HAS_AVX2
    v.push_back({"avx2", avx2, &avx2::instance});
#endif
#ifdef TRIAX_HAS_AVX512
    v.push_back({"avx512", avx512, &avx512::instance});
#endif
#ifdef TRIAX_HAS_AVX512_BF16
    // The last that runs is taken: where pairs are slow, avx512.
    v.insert(v.end() - pairs_are_slow(),
             {"avx512_bf16", avx512 && has_bf16(), &avx512::avx512_bf16::instance});
#endif
#ifdef TRIAX_HAS_AMX
    v.push_back({"amx", avx512 && has_bf16() && tiles_granted(), &avx512::amx::instance});
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
  fail(
      Exit::config,
      "cpu: instruction level '{}'; this machine has {}\n  TRIAX_CPU_LEVEL chooses one; without it "
      "the last is taken.",
      name, join(levels(), ", "));
}

Backend& backend() {
  static Backend& chosen = [&]() -> Backend& {
    check_input(!levels().empty(), Exit::config,
                "cpu: this program has no kernels for this machine's instructions\n"
                "  Build it with -DTRIAX_CPU_LEVELS=native here, or with all.");
    const char* forced = std::getenv("TRIAX_CPU_LEVEL");
    return backend_of(forced && *forced ? forced : levels().back());
  }();
  return chosen;
}

}  // namespace triax::host
