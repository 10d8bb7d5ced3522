#pragma once

namespace triax {

/// An elementwise op as a number, to pass through a virtual call: its functor's place in
/// functors::Unary (core/functors/unary.h), functors::Binary (core/functors/binary.h). This header
/// names only what kernels ask each other for, so that a new functor builds few files again.
enum class Unary : int { gelu };
enum class Binary : int {};

namespace functors {

template <class... F> struct List {
  static constexpr int size = sizeof...(F);
  template <class G> static constexpr int index() {
    int i = 0, found = -1;
    ((__is_same(F, G) ? found = i++ : i++), ...);
    return found;
  }
  /// Calls `f.operator()<F>()` with the functor numbered `id`.
  template <class Call> __attribute__((always_inline)) static void visit(int id, Call&& call) {
    int i = 0;
    ((i++ == id ? call.template operator()<F>() : void()), ...);
  }
  static constexpr const char* names[] = {F::name...};
  template <template <class...> class To> using in = To<F...>;
};

}  // namespace functors
}  // namespace triax
