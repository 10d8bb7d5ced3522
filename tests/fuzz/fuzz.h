#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "tests/support/temporary_directory.h"
#include "triax/core/error.h"

/// @file What all fuzz targets share. Each is one file, with libFuzzer's entry point
/// (llvm.org/docs/LibFuzzer.html), and has its first inputs in corpus/NAME/.
namespace triax::test {

/// Calls `read`, which either accepts what the fuzzer made or refuses it: with an Error whose code
/// says that the input is wrong. Anything else that it throws ends the fuzzer, as crashes, findings
/// of sanitizers and allocations beyond scripts/fuzz_parsers.sh's limit do.
template <class F> int accept_or_refuse(F read) {
  try {
    read();
  } catch (const Error& e) {
    bool refusal = e.code() == Exit::data || e.code() == Exit::config || e.code() == Exit::usage ||
                   e.code() == Exit::not_found;
    if (!refusal) throw;
  }
  return 0;
}

inline std::string text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// A directory of this process with one file, of these bytes.
class FileOf {
 public:
  explicit FileOf(std::string name) : path_(directory_ / name) {}
  const std::string& path() const { return path_; }
  std::string directory() const { return directory_.path(); }
  void set(const uint8_t* data, size_t size) { write_bytes(path_, text_of(data, size)); }

 private:
  TemporaryDirectory directory_;
  std::string path_;
};

}  // namespace triax::test
