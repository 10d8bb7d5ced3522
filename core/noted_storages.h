#pragma once
#include <memory>
#include <vector>

#include "core/storage.h"

namespace triax {

/// Returns a storage for a tensor of this thread.
std::shared_ptr<Storage> make_storage(size_t bytes, Device device,
                                      std::shared_ptr<Allocator> allocator);

/// While it lives, the storages that make_storage() returns on this thread are noted in `list`, if
/// they are counted as activations.
using StorageList = std::vector<std::weak_ptr<Storage>>;
class NotedStorages : Scoped<StorageList*> {
 public:
  explicit NotedStorages(StorageList& list);
};

}  // namespace triax
