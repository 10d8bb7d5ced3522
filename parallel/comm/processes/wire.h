#pragma once
#include <cstddef>

namespace triax::parallel {

/// Bytes between two processes of a group, without blocking. Messages of one sender and tag arrive
/// in the order sent; the receiver knows the size, a longer message is an error.
class Wire {
 public:
  virtual ~Wire();
  /// A transfer that has begun; given back by `finished`.
  using Ticket = int;
  virtual Ticket send(const void* data, size_t bytes, int to, int tag) = 0;
  virtual Ticket receive(void* data, size_t bytes, int from, int tag) = 0;
  /// True once, when it is over; the ticket means nothing after. Throws Error 72 if it failed.
  virtual bool finished(Ticket ticket) = 0;
};

}  // namespace triax::parallel
