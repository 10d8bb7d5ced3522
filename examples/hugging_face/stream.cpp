#include "examples/hugging_face/stream.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "triax/core/check.h"

namespace triax::hf {
namespace {

constexpr const char* lock_file = "lock";           // RunLock's
constexpr const char* marker = "import-or-export";  // tells the directory from a run's

}  // namespace

Tensor deferred(const Shape& shape, DType dtype, std::function<void(const Tensor&)> fill) {
  Tensor x = empty(shape, dtype, cpu);
  std::weak_ptr<Storage> weak = x.storage();
  x.storage()->release();
  x.storage()->set_hold([=](Access) {
    auto storage = weak.lock();
    storage->restore();
    auto held = std::shared_ptr<void>(nullptr, [storage](void*) { storage->release(); });
    fill(Tensor(storage, dtype, shape, contiguous_strides(shape)));
    return held;
  });
  return x;
}

void check_range(const std::string& name, const Tensor& x) {
  if (x.dtype() != f16) return;
  for (Half value : x.to_host<Half>())
    check_input(std::isfinite(float(value)), Exit::config,
                "export: dtype=fp16, but {} has weights beyond 65504\n  Take --dtype bf16.", name);
}

void Progress::add(uint64_t bytes) {
  done_ += bytes;
  auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::seconds(2)) return;
  last_ = now;
  fmt::print("{}: {:.1f} of {:.1f} GB\n", what_, double(done_) / 1e9, double(all_) / 1e9);
  std::fflush(stdout);
}

NewDirectory::NewDirectory(const std::string& path, const Files& files)
    : path_(path), files_(files) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
  std::error_code none;
  bool plain = files.is_directory(path_) && !std::filesystem::is_symlink(path_, none);
  check_input(!files.exists(path_) || (plain && files.list(path_).empty()), Exit::config,
              "{} is there already; expected a new or an empty directory\n  Nothing was changed.",
              path_);
  work_ = path_ + ".unfinished";
  auto left = files.list(work_);  // left by a process that was killed
  check_input(left.empty() || std::ranges::count(left, marker) > 0, Exit::config,
              "{} is there already, and was not left by an import or export; expected no such "
              "directory\n  Nothing was changed.",
              work_);
  files.make_directory(work_);
  std::ofstream(work_ + "/" + marker);  // without it, leftovers are removed by hand
  lock_ = std::make_unique<parallel::RunLock>(work_);
  for (const std::string& name : left)
    if (name != lock_file && name != marker) files.remove(work_ + "/" + name);
}

void NewDirectory::publish() {
  files_.sync_directory(work_);
  files_.rename(work_, path_);
  published_ = true;
  std::error_code none;
  for (const char* name : {lock_file, marker}) std::filesystem::remove(path_ + "/" + name, none);
  files_.sync_directory(parent_directory(path_));
}

NewDirectory::~NewDirectory() {
  if (published_) return;
  try {
    files_.remove(work_);
  } catch (const Error&) {  // the error that brought us here says more
  }
}

}  // namespace triax::hf
