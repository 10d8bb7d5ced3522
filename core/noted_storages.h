#pragma once
#include <memory>
#include <vector>

#include "triax/core/storage.h"

namespace triax {

/// Returns a new storage, noted by the NotedStorages of this thread, if there are any.
std::shared_ptr<Storage> make_storage(size_t bytes, Device device,
                                      std::shared_ptr<Allocator> allocator);

using StorageList = std::vector<std::weak_ptr<Storage>>;

/// Notes in a list the storages that this thread makes for activations (memory::Kind) as long as
/// the object lives.
class NotedStorages : Scoped<StorageList*> {
 public:
  explicit NotedStorages(StorageList& list);
};

}  // namespace triax
