#pragma once
#include "core/memory.h"

namespace triax::memory {

/// While it lives, storage made on this thread is counted apart: it is no memory of the rank.
class OwnCounter {
 public:
  OwnCounter() : outer_(counter()) { set_counter(std::make_shared<Counter>()); }
  ~OwnCounter() { set_counter(outer_); }
  OwnCounter(const OwnCounter&) = delete;
  OwnCounter& operator=(const OwnCounter&) = delete;

 private:
  std::shared_ptr<Counter> outer_;
};

}  // namespace triax::memory
