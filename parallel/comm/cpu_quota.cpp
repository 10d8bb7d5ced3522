#include "parallel/comm/cpu_quota.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <vector>

namespace triax::parallel {
namespace {

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Returns the quota in cores. Files hold `max`, -1 or microseconds of CPU time in each period.
double quota_in(const std::string& directory) {
  double quota = 0, period = 0;
  std::ifstream of_version_2(directory + "/cpu.max");
  std::ifstream of_version_1(directory + "/cpu.cfs_quota_us");
  bool known = of_version_2 >> quota >> period ||
               (of_version_1 >> quota && std::ifstream(directory + "/cpu.cfs_period_us") >> period);
  return known && quota > 0 && period > 0 ? quota / period : unlimited;
}

/// Returns the least quota of a group and of all groups around it. Inside a container its path may
/// be that of the host: then only the last, the mount itself, is there.
double least_quota(const std::string& mount, std::string path) {
  double least = unlimited;
  for (; !path.empty(); path.resize(path.rfind('/')))
    least = std::min(least, quota_in(mount + path));
  return std::min(least, quota_in(mount));
}

}  // namespace

double cpu_quota(const ControlGroups& groups) {
  double least = unlimited;
  std::ifstream lines(groups.of_process);
  for (std::string line; std::getline(lines, line);) {  // `4:cpu,cpuacct:/path`, `0::/path`
    size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    std::string controllers = line.substr(first + 1, second - first - 1);
    std::string path = line.substr(second + 1);
    if (!path.starts_with('/') || path.find("/..") != path.npos) path = "";
    std::vector<std::string> mounts;
    if (controllers.empty()) mounts = {"", "/unified"};
    else if (("," + controllers + ",").find(",cpu,") != line.npos)
      mounts = {"/" + controllers, "/cpu"};
    for (auto& mount : mounts) least = std::min(least, least_quota(groups.mount + mount, path));
  }
  return least;
}

}  // namespace triax::parallel
