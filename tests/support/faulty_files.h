#pragma once
#include <atomic>
#include <string>

#include "triax/core/io/files.h"

namespace triax::test {

/// Lets exactly one operation fail: the one with number `at`, with errno `error`.
class FaultyFiles final : public Files {
 public:
  FaultyFiles(int at, int error) : at_(at), error_(error) {}
  int fault(const char* operation, const std::string& path) const override {
    if (count_++ != at_) return 0;
    failed_ = operation;
    failed_path_ = path;
    return error_;
  }
  /// What failed, empty if `at` was never reached.
  const std::string& failed() const { return failed_; }
  const std::string& failed_path() const { return failed_path_; }

 private:
  int at_, error_;
  mutable std::atomic<int> count_ = 0;
  mutable std::string failed_, failed_path_;
};

}  // namespace triax::test
