#pragma once
#include <unistd.h>

#include <filesystem>
#include <string>

namespace triax::test {

/// Cut the nameless files of this process that were made in `directory` to `bytes`, as a failing
/// disk might; how many there were.
inline int cut_offload_files(const std::string& directory, size_t bytes) {
  int count = 0;
  for (auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.find(directory + "/") != 0) continue;
    count += ::truncate(entry.path().c_str(), off_t(bytes)) == 0;
  }
  return count;
}

}  // namespace triax::test
