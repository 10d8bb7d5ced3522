#pragma once
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

namespace triax::parallel {

/// Scalars for TensorBoard: a new event file in `directory`, which is a file of TFRecords, each a
/// tensorflow.Event in Protocol Buffers' wire format. Throws Error 73 if it cannot be written.
class EventFile {
 public:
  /// Makes the file. Earlier files' scalars of `first_step` and later steps no longer count.
  EventFile(const std::string& directory, int64_t first_step);
  void scalar(int64_t step, std::string_view tag, double value);
  /// Hands everything written to the system.
  void flush();

 private:
  void write(int64_t step, const std::string& fields);
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

}  // namespace triax::parallel
