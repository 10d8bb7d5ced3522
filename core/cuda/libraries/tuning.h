#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <mutex>

namespace triax::cuda {

/// True if the work given to `stream` is captured into a graph instead of run.
bool is_captured(cudaStream_t stream);
/// Makes the host wait for everything on `stream`.
void drain(cudaStream_t stream);

/// Returns the milliseconds that run() takes on `stream`, which must be idle; infinity if it
/// returns false: it could not be queued.
float time_of(cudaStream_t stream, const std::function<bool()>& run);

/// Decisions made once for all threads of the process, so that equal work is done alike.
template <class Key, class Value> class Decisions {
 public:
  /// Returns the result of make() when `key` first came up; it may measure on `stream`. While the
  /// stream is captured nothing is measured (is_captured) and nothing is remembered.
  template <class Make> Value of(const Key& key, cudaStream_t stream, Make make) {
    if (const Value* known = find(key)) return *known;
    if (is_captured(stream)) return make();
    // Before the lock: what is queued may wait for other threads' work, and they for the lock. This
    // stream alone: a send on another may wait for a peer that stands here, too.
    drain(stream);
    std::lock_guard guard(deciding_);
    if (const Value* known = find(key)) return *known;  // meanwhile, by another thread
    Value value = make();
    std::lock_guard writing(map_);
    return known_.emplace(key, std::move(value)).first->second;
  }

 private:
  const Value* find(const Key& key) {
    std::lock_guard guard(map_);
    auto found = known_.find(key);
    return found == known_.end() ? nullptr : &found->second;  // nodes of a map stay where they are
  }

  std::mutex deciding_, map_;
  std::map<Key, Value> known_;
};

}  // namespace triax::cuda
