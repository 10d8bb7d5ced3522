#include "triax/optim/window.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "triax/core/backend.h"
#include "triax/core/check.h"

namespace triax::optim {
namespace {

constexpr size_t ahead = 2;  // records that are read before their turn

/// Aligned blocks, reused by records of the same size.
class Blocks final : public Allocator {
 public:
  ~Blocks() override { free_all(); }

  void* allocate(size_t bytes) override {
    std::lock_guard guard(lock_);
    auto& blocks = free_[bytes];
    if (!blocks.empty()) {
      void* block = blocks.back();
      blocks.pop_back();
      return block;
    }
    free_all();  // of other sizes: a window holds a number of records, not of bytes
    void* block = map(bytes);
    if (block == MAP_FAILED) {
      trim_memory();  // what other tensors have left behind
      block = map(bytes);
    }
    check_input(block != MAP_FAILED, Exit::memory,
                "memory: no {} bytes left on the host for what is offloaded", bytes);
    return block;
  }
  void deallocate(void* block, size_t bytes) noexcept override {
    std::lock_guard guard(lock_);
    free_[bytes].push_back(block);
  }

 private:
  /// Maps memory straight from the kernel: malloc would keep what is freed, in pieces that other
  /// records do not fit in.
  static void* map(size_t bytes) {
    return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }

  void free_all() {
    for (auto& [bytes, blocks] : free_) {
      for (void* block : blocks) ::munmap(block, bytes);
      blocks.clear();
    }
  }
  std::mutex lock_;
  std::unordered_map<size_t, std::vector<void*>> free_;
};

/// Returns the bytes with room for the stamp.
size_t padded(size_t bytes) {
  return (bytes + sizeof(uint64_t) + StateFile::block - 1) / StateFile::block * StateFile::block;
}

}  // namespace

Window::Window(const Offload& offload, Device device, const std::vector<size_t>& sizes)
    : records_(sizes.size()), most_(offload.window), counter_(memory::counter()) {
  check(most_ > ahead, "offload: a window of {} chunks; expected at least {}", most_, ahead + 1);
  bool real = device == cpu;
  std::shared_ptr<Allocator> blocks =
      real ? std::make_shared<Blocks>() : backend(device).allocator();
  memory::Scope scope(memory::buffers);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Record& r = records_[i];
    r.offset = uint64_t(bytes_);
    r.storage = std::make_shared<Storage>(padded(sizes[i]), device, blocks);
    r.storage->release();
    r.storage->set_hold([this, i](Access access) { return hold(i, access); });
    bytes_ += int64_t(padded(sizes[i]));
  }
  if (real) file_ = std::make_unique<StateFile>(offload.directory, uint64_t(bytes_));
  counter_->add(memory::offloaded, bytes_);
}

Window::~Window() {
  for (Record& r : records_) r.storage->set_hold({});
  if (bytes_ > 0) counter_->add(memory::offloaded, -bytes_);
}

std::shared_ptr<void> Window::hold(size_t i, Access access) {
  if (failure_) std::rethrow_exception(failure_);
  bring(i, Contents::read);
  return handle(records_[i], access);
}

std::shared_ptr<void> Window::overwrite(size_t i) {
  if (failure_) std::rethrow_exception(failure_);
  bring(i, Contents::undefined);
  return handle(records_[i], Access::write);
}

std::shared_ptr<void> Window::handle(Record& r, Access access) {
  settle(r);
  ++r.holders;
  return {&r, [access](void* p) {
            auto* held = static_cast<Record*>(p);
            --held->holders;
            held->changed |= access == Access::write;
          }};
}

std::shared_ptr<void> Window::pass(size_t i) {
  for (size_t k = 0; k <= ahead; ++k) bring((i + k) % records_.size(), Contents::read);
  auto held = hold(i, Access::write);
  return {held.get(), [this, held](void* p) mutable {
            held.reset();
            try {
              write(*static_cast<Record*>(p));
            } catch (...) {  // this may run while another error unwinds
              failure_ = std::current_exception();
            }
          }};
}

void Window::bring(size_t i, Contents contents) {
  Record& r = records_[i];
  std::erase(inside_, i);
  if (!r.storage->present()) {
    make_room();
    r.storage->restore();
    if (contents == Contents::read && r.stamp > 0 && file_)
      r.ticket = file_->read(r.offset, r.storage->data(), r.storage->bytes());
  }
  inside_.push_back(i);
}

void Window::make_room() {
  while (inside_.size() >= most_) {
    auto oldest = std::ranges::find_if(inside_, [&](size_t i) { return records_[i].holders == 0; });
    check(oldest != inside_.end(), "offload: all {} chunks of the window are held", most_);
    Record& r = records_[*oldest];
    write(r);
    settle(r);
    r.storage->release();
    inside_.erase(oldest);
  }
}

void Window::write(Record& r) {
  if (!r.changed || r.holders > 0) return;
  r.changed = false;
  r.stamp = ++writes_;
  if (!file_) return;
  std::memcpy(stamp_of(r), &r.stamp, sizeof r.stamp);
  r.ticket = file_->write(r.offset, r.storage->data(), r.storage->bytes());
}

void Window::settle(Record& r) {
  if (!r.ticket) return;
  file_->wait(*r.ticket);
  bool known = std::memcmp(stamp_of(r), &r.stamp, sizeof r.stamp) == 0;
  check_input(known, Exit::io,
              "offload: the {} bytes at byte {} of the file in {} are not those that were written; "
              "expected that nothing else changes it",
              r.storage->bytes(), r.offset, file_->directory());
  r.ticket.reset();  // until then nobody is handed the record
}

char* Window::stamp_of(const Record& r) const {
  return static_cast<char*>(r.storage->data()) + r.storage->bytes() - sizeof r.stamp;
}

}  // namespace triax::optim
