#pragma once
#include <string>

namespace triax::parallel {

/// The paths where Linux lists a process's control groups, and their limits.
struct ControlGroups {
  std::string of_process = "/proc/self/cgroup", mount = "/sys/fs/cgroup";
};

/// Returns the CPU quota of this process in cores, as containers have it: the least of its control
/// group's and of those around it, in both versions of control groups (cpu.max; cpu.cfs_quota_us).
/// Infinity without one.
double cpu_quota(const ControlGroups& groups = {});

}  // namespace triax::parallel
