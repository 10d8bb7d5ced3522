#pragma once
#include <cstring>

#include "parallel/comm/call.h"

namespace triax::parallel {

/// A call in a form that can cross to another process.
struct Record {
  int64_t numel;
  int32_t peer, line;
  uint8_t kind, op, dtype;
  char file[77];

  static Record of(const Call& c) {
    Record r{c.numel, c.peer, c.place.line, c.kind, uint8_t(c.op), uint8_t(c.dtype), {}};
    size_t length = std::strlen(c.place.file), room = sizeof r.file - 1;
    const char* tail = c.place.file + (length > room ? length - room : 0);
    std::memcpy(r.file, tail, std::min(length, room));
    return r;
  }
  /// The call's `place` points into this record.
  Call call() const {
    return {Call::Kind(kind), ReduceOp(op), DType(dtype), peer, numel, {file, line}};
  }
};

}  // namespace triax::parallel
