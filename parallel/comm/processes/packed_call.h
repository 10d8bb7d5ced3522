#pragma once
#include <cstring>

#include "parallel/comm/call.h"

namespace triax::parallel {

/// A call in a form that can cross to another process.
struct PackedCall {
  int64_t numel;
  int32_t peer, line;
  uint8_t kind, op, dtype;
  char file[77];

  static PackedCall of(const Call& c) {
    PackedCall p{c.numel, c.peer, c.place.line, c.kind, uint8_t(c.op), uint8_t(c.dtype), {}};
    size_t length = std::strlen(c.place.file), room = sizeof p.file - 1;
    const char* tail = c.place.file + (length > room ? length - room : 0);
    std::memcpy(p.file, tail, std::min(length, room));
    return p;
  }
  /// The call's `place` points into this.
  Call call() const {
    return {Call::Kind(kind), ReduceOp(op), DType(dtype), peer, numel, {file, line}};
  }
};

}  // namespace triax::parallel
