#include "core/cpu/scratch.h"

#include "core/cpu/base.h"

namespace triax::host {
namespace {

class Scratch {
 public:
  Scratch() = default;
  ~Scratch() { give_back(); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* grow(size_t bytes) {
    if (bytes > bytes_) {
      give_back();
      data_ = allocator_->allocate(bytes);
      bytes_ = bytes;
    }
    return data_;
  }

 private:
  void give_back() {
    if (data_) allocator_->deallocate(data_, bytes_);
    data_ = nullptr;
    bytes_ = 0;
  }

  std::shared_ptr<Allocator> allocator_ = caching_allocator();
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace

void* scratch(size_t bytes) {
  thread_local Scratch buffer;
  return buffer.grow(bytes);
}

}  // namespace triax::host
