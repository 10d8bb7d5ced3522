#pragma once
#include <utility>

namespace triax {

/// The base of a class whose objects are neither copied nor moved.
struct Immovable {
  Immovable() = default;
  Immovable(const Immovable&) = delete;
  Immovable& operator=(const Immovable&) = delete;
};

/// Gives a variable, often one of this thread, another value while it lives.
template <class T> class Scoped : Immovable {
 public:
  Scoped(T& variable, T value)
      : variable_(variable), outer_(std::exchange(variable, std::move(value))) {}
  ~Scoped() { variable_ = std::move(outer_); }

 private:
  T& variable_;
  T outer_;
};

}  // namespace triax
