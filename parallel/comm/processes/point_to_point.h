#pragma once
#include <cstddef>

namespace triax::parallel {

/// Bytes between two processes of a group, without blocking. Messages of one sender and tag arrive
/// in the order sent; the receiver knows the size, a longer message is an error.
class PointToPoint {
 public:
  virtual ~PointToPoint();
  /// A transfer that has begun; given back by `finished`.
  using Request = int;
  virtual Request send(const void* data, size_t bytes, int to, int tag) = 0;
  virtual Request receive(void* data, size_t bytes, int from, int tag) = 0;
  /// True once, when it is over; the request means nothing after. Throws Error 72 if it failed.
  virtual bool finished(Request request) = 0;
};

}  // namespace triax::parallel
