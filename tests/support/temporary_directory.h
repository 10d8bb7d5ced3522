#pragma once
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "triax/core/io/files.h"

namespace triax::test {

/// An empty directory that goes away with the test; in memory where that can be had, since these
/// tests wait for the disk thousands of times.
class TemporaryDirectory {
 public:
  TemporaryDirectory()
      : path_((::access("/dev/shm", W_OK) == 0 ? "/dev/shm"
                                               : std::filesystem::temp_directory_path()) /
              ("triax-test-" + unique_suffix())) {
    std::filesystem::create_directory(path_);
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path_); }
  TemporaryDirectory(const TemporaryDirectory&) = delete;

  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);  // ext4 waits for the disk when a file is truncated and rewritten
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace triax::test
