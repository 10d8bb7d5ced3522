#include "triax/core/cuda/runtime/pool.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "triax/core/check.h"

namespace triax::cuda {

namespace {

// Rounds up to one of eight classes per power of two (at most an eighth is wasted), at least 512.
size_t size_class(size_t bytes) {
  if (bytes <= 4096) return (bytes + 511) / 512 * 512;
  size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

std::string who_holds_what() {
  std::string table;
  for (int kind = 0; kind < memory::kinds; ++kind)
    if (int64_t bytes = memory::counter()->live(memory::Kind(kind)); bytes > 0)
      table += fmt::format("\n  {:<12} {:>16} bytes", memory::name(memory::Kind(kind)), bytes);
  return table;
}

}  // namespace

BlockSource::~BlockSource() = default;

Pool::Pool(std::unique_ptr<BlockSource> source) : source_(std::move(source)) {}
Pool::~Pool() { trim(); }

bool Pool::take(size_t size, Block& block) {
  std::lock_guard guard(mutex_);
  auto& blocks = free_[size];
  auto ready = [&](const Block& b) { return !b.after || source_->ready(b.after); };
  auto found = std::find_if(blocks.rbegin(), blocks.rend(), ready);  // the last is in caches
  if (found == blocks.rend()) return false;
  std::swap(*found, blocks.back());
  block = std::move(blocks.back());
  blocks.pop_back();
  unused_ -= size;
  return true;
}

void* Pool::allocate(size_t bytes) {
  size_t size = size_class(bytes);
  Block block{};
  if (take(size, block)) {
    if (block.after) source_->wait_for(block.after);
    return block.data;
  }
  void* data = source_->allocate(size);
  if (!data && source_->may_free()) {
    trim();
    data = source_->allocate(size);
  }
  check_input(data != nullptr, Exit::memory,
              "memory: no {} bytes left on {}; of this rank's tensors, on all devices:{}", size,
              source_->where(), who_holds_what());
  return data;
}

void Pool::deallocate(void* data, size_t bytes) noexcept {
  size_t size = size_class(bytes);
  source_->poison(data, size);
  std::shared_ptr<void> after = source_->mark();
  std::lock_guard guard(mutex_);
  free_[size].push_back({data, std::move(after)});
  unused_ += size;
}

void Pool::trim() {
  std::lock_guard guard(mutex_);
  for (auto& [size, blocks] : free_) {
    for (const Block& block : blocks) source_->free(block.data);
    blocks.clear();
  }
  unused_ = 0;
}

std::shared_ptr<void> Pool::set_aside() {
  std::lock_guard guard(mutex_);
  using Blocks = std::unordered_map<size_t, std::vector<Block>>;
  auto give_back = [pool = shared_from_this()](Blocks* blocks) {
    std::lock_guard again(pool->mutex_);
    for (auto& [size, some] : *blocks)
      for (Block& block : some) {
        pool->free_[size].push_back(std::move(block));
        pool->unused_ += size;
      }
    delete blocks;
  };
  std::shared_ptr<Blocks> aside(new Blocks(std::exchange(free_, {})), give_back);
  unused_ = 0;
  return aside;
}

size_t Pool::unused() const {
  std::lock_guard guard(mutex_);
  return unused_;
}

}  // namespace triax::cuda
