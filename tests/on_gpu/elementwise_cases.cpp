#include "tests/on_gpu/on.h"
#include "triax/core/functors/binary.h"
#include "triax/core/functors/unary.h"

namespace triax::test {
namespace {

void copies(On& on) {
  for (int64_t n : sizes) {
    Tensor x = on.in({n, 5}, 1, 3);
    for (DType to : {f32, f64, f16, bf16}) {
      on.backend.copy(x, on.out({n, 5}, to, n % 2));
      on.backend.copy(x.transpose(0, 1), on.out({5, n}, to));
      on.backend.copy(x.narrow(1, 1, 3), on.out({3, n}, to).transpose(0, 1));
    }
    on.backend.copy(on.ids({n}, 50), on.out({n}));
  }
}

void fills(On& on) {
  for (int64_t n : sizes) {
    on.backend.fill(on.out({n}), -1.5);
    on.backend.fill(on.out({n, 5}).narrow(1, 1, 3), 2);
  }
}

void accumulates(On& on) {
  for (int64_t n : sizes) {
    on.backend.accumulate(on.in({n}, 1), on.out({n}, on.sums));
    on.backend.accumulate(on.in({n}, 2), on.out({n}, on.dtype, 1));
    on.backend.accumulate(on.in({n}, 3, on.sums), on.out({n}));
  }
}

void selects(On& on) {
  for (int64_t n : sizes)
    for (int dim : {0, 1}) {
      Tensor x = on.in({9, 6, 5}, 1), at = on.ids({n}, x.size(dim), dim ? i32 : i64);
      Shape picked = x.shape(), turned = {5, 6, 9};
      picked[dim] = n;
      turned[2 - dim] = n;
      on.backend.index_select(x, dim, at, on.out(picked));
      on.backend.index_select(x, dim, at, on.out(turned).transpose(0, 2));
      on.backend.index_add(on.in(picked, 2), dim, at, on.out(x.shape()));
      on.backend.index_add(on.in(picked, 3), dim, at, on.out({5, 6, 9}, on.sums).transpose(0, 2));
    }
}

void gathers(On& on) {
  for (int64_t n : sizes) {
    Tensor x = on.in({7, 33}, 1), at = on.ids({7, n}, 33, n == 33 ? i64 : i32);
    on.backend.gather(x, at, on.out({7, n}));
    on.backend.gather(on.in({33, 7}, 2).transpose(0, 1), at, on.out({7, n}));
    on.backend.scatter_add(on.in({7, n}, 3), at, on.out({7, 33}));
    on.backend.scatter_add(on.in({7, n}, 4), at, on.out({7, 33}, on.sums));
  }
}

// Values whose logarithm and root exist.
Tensor positive(On& on, const Shape& shape, uint64_t seed) {
  Tensor x = on.in(shape, seed), y = empty_like(x);
  on.backend.binary(binary_id<functors::Mul>(), x, x, y);
  on.backend.binary(binary_id<functors::Add>(), y,
                    full({}, 0.25, on.dtype, on.device).expand(shape), y);
  return y;
}

void unaries(On& on) {
  for (int64_t n : sizes)
    for (int op = 0; op < functors::Unary::size; ++op) {
      Tensor x = positive(on, {n}, 1), skipped = on.in({n + 1}, 2, 2).narrow(0, 1, n);
      on.backend.unary(Unary(op), x, on.out({n}));
      on.backend.unary(Unary(op), skipped, on.out({n}, on.dtype, 1));
      Tensor same = on.state(x);
      on.backend.unary(Unary(op), same, same);
    }
}

void slopes(On& on) {
  for (int64_t n : sizes)
    for (int op = 0; op < functors::Unary::size; ++op) {
      Tensor x = positive(on, {n}, 1), y = empty_like(x), dy = on.in({n}, 3);
      on.backend.unary(Unary(op), x, y);
      on.backend.unary_backward(Unary(op), x, y, dy, on.out({n}), Write::set);
      on.backend.unary_backward(Unary(op), x, y, dy, on.out({n}, on.dtype, 1), Write::add);
    }
}

void binaries(On& on) {
  for (int64_t n : sizes)
    for (int op = 0; op < functors::Binary::size; ++op) {
      Tensor a = on.in({3, n}, 1), b = positive(on, {3, n}, 2), row = positive(on, {n}, 3);
      Tensor column = positive(on, {3, 1}, 4), turned = on.in({n, 3}, 5).transpose(0, 1);
      on.backend.binary(Binary(op), a, b, on.out({3, n}));
      on.backend.binary(Binary(op), a, row.expand({3, n}), on.out({3, n}));
      on.backend.binary(Binary(op), a, column.expand({3, n}), on.out({3, n}, on.dtype, 1));
      on.backend.binary(Binary(op), turned, b, on.out({3, n}));
    }
}

void picks(On& on) {
  for (int64_t n : sizes) {
    Tensor a = on.in({3, n}, 1), b = on.in({n}, 2).expand({3, n});
    on.backend.where(on.mask({3, n}), a, b, on.out({3, n}));
    on.backend.where(on.mask({3, 1}).expand({3, n}), b, a, on.out({3, n}, on.dtype, 1));
    on.backend.where(on.mask({n, 3}).transpose(0, 1), a, b, on.out({3, n}));
  }
}

void drops(On& on) {
  for (int64_t n : sizes)
    on.backend.dropout(on.in({3, n}, 1), {0.3f, 9, int64_t{1} << 33, n}, on.out({3, n}));
}

void sums(On& on) {
  for (int64_t n : sizes)
    for (Write write : {Write::set, Write::add}) {
      Tensor x = on.in({3, n, 5}, 1);
      for (const Shape& to : {Shape{1, 1, 1}, {3, 1, 1}, {1, n, 5}, {3, 1, 5}, {1, n, 1}}) {
        if (n == 1000 && to == Shape{1, n, 1}) continue;  // a block for every 5 elements
        on.backend.sum(x, on.out(to), write);
        on.backend.sum(x, on.out(to, on.sums), write);
      }
      on.backend.sum(on.in({n, 100}, 2), on.out({1, 100}, on.sums), write);
    }
}

void maxima(On& on) {
  for (int64_t n : sizes)
    for (const Shape& to : {Shape{1, 1, 1}, {3, 1, 1}, {1, n, 5}, {3, 1, 5}})
      on.backend.max(on.in({3, n, 5}, 1), on.out(to));
}

void squares(On& on) {
  for (int64_t n : {1, 33, 1000, 20000}) {
    Tensor x = on.in({n}, 1);
    on.backend.squares(x, on.out({2}, f64));
    if (n < 3) continue;
    fill_(x.narrow(0, 1, 1), NAN);
    fill_(x.narrow(0, n - 1, 1), -INFINITY);
    Tensor found = full({2}, 5, f64, on.device);
    on.backend.squares(x, found);
    on.backend.copy(found.narrow(0, 1, 1), on.out({1}, f64));
  }
}

}  // namespace

std::vector<Case> movement_cases() {
  return {{"copy", 0, copies},
          {"fill", 0, fills},
          {"accumulate", 1, accumulates},
          {"index_select", 0, selects},
          {"gather", 0, gathers}};
}

std::vector<Case> elementwise_cases() {
  return {{"unary", 2, unaries}, {"unary_backward", 4, slopes}, {"binary", 1, binaries},
          {"where", 0, picks},   {"dropout", 0, drops},         {"sum", 10, sums},
          {"max", 0, maxima},    {"squares", 1, squares}};
}

}  // namespace triax::test
