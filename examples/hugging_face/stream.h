#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "triax/core/io/files.h"
#include "triax/core/tensor.h"
#include "triax/parallel/train/runs/run_directory.h"

// Streams models of any size through memory, one tensor at a time.
namespace triax::hf {

/// Returns a CPU tensor whose values are made whenever its storage is held, and go away afterwards:
/// writers of files hold one tensor at a time.
Tensor deferred(const Shape& shape, DType dtype, std::function<void(const Tensor&)> fill);

/// Throws Error 78 for a weight that fp16 does not have.
void check_range(const std::string& name, const Tensor& x);

/// Reports every two seconds how many of `all` bytes are done: nothing for a small model.
class Progress {
 public:
  Progress(std::string what, uint64_t all) : what_(std::move(what)), all_(all) {}
  void add(uint64_t bytes);

 private:
  std::string what_;
  uint64_t all_, done_ = 0;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// A directory that is there with all of its files, or not at all.
class NewDirectory : Immovable {
 public:
  /// Throws Error 78 if `path` exists and is no empty directory, or if another process makes it.
  /// Makes a directory beside it to write to, without leftovers of a process that was killed.
  NewDirectory(const std::string& path, const Files& files);
  /// Removes it, unless it was published.
  ~NewDirectory();

  /// Returns the directory to write files to.
  const std::string& work() const { return work_; }
  /// Gives the directory its name, once all files are written and synced.
  void publish();

 private:
  std::string path_, work_;
  const Files& files_;
  std::unique_ptr<parallel::RunLock> lock_;
  bool published_ = false;
};

}  // namespace triax::hf
