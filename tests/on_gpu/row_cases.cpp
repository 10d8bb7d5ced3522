#include "tests/on_gpu/on.h"

namespace triax::test {
namespace {

// Operands in rows, in columns, and with gaps between rows.
void products(On& on) {
  for (int64_t n : sizes)
    for (int64_t k : {1, 33, 256}) {
      Tensor a = on.in({33, k}, 1), b = on.in({k, n}, 2);
      Tensor a_columns = on.in({k, 33}, 3).transpose(0, 1), b_columns = on.in({n, k}, 4);
      Tensor gaps = on.in({33, k + 3}, 5).narrow(1, 1, k);
      on.backend.matmul({a, b, on.out({33, n})});
      on.backend.matmul({a_columns, b, on.out({33, n}, on.sums)});
      on.backend.matmul({a, b_columns.transpose(0, 1), on.out({33, n}), Write::add});
      on.backend.matmul({gaps, b, on.out({33, n}, on.sums), Write::add});
      on.backend.matmul({a, b, on.out({n, 33}).transpose(0, 1)});
    }
}

void batches(On& on) {
  Tensor a = on.in({2, 3, 33, 20}, 1), b = on.in({3, 20, 17}, 2), one = on.in({20, 17}, 3);
  on.backend.matmul({a, b.expand({2, 3, 20, 17}), on.out({2, 3, 33, 17})});
  on.backend.matmul({a, one.expand({2, 3, 20, 17}), on.out({2, 3, 33, 17}, on.sums)});
  Tensor heads = on.in({33, 3, 20}, 4).transpose(0, 1);  // [3, 33, 20]
  on.backend.matmul({heads, b, on.out({33, 3, 17}).transpose(0, 1), Write::add});
}

void epilogues(On& on) {
  for (int64_t n : {1, 33, 64, 1000}) {
    Tensor a = on.in({33, 64}, 1, 0.3), b = on.in({n, 64}, 2, 0.3).transpose(0, 1);
    Tensor bias = on.in({n}, 3);
    on.backend.matmul({.a = a, .b = b, .c = on.out({33, n}), .bias = bias});
    on.backend.matmul(
        {.a = a, .b = b, .c = on.out({33, n}), .bias = bias, .before = on.out({33, n})});
    Tensor rest = on.in({33, n}, 4), unaligned = on.out({33, n}, on.dtype, 1);
    copy_(unaligned, rest);
    for (const Tensor& to : {rest, unaligned}) {
      on.backend.matmul_onto({.a = a, .b = b, .c = on.out({33, n})}, to);
      on.backend.matmul_onto({.a = a, .b = b, .c = on.out({33, n}), .bias = bias}, to);
    }
    Tensor nothing = on.in({33, 0}, 5);
    on.backend.matmul_onto({.a = nothing, .b = on.in({0, n}, 6), .c = on.out({33, n})}, rest);
  }
}

// A linear layer's two products, of which the first has gelu in front.
void backward_products(On& on) {
  for (int64_t n : {1, 33, 64, 1000})
    for (Write write : {Write::set, Write::add}) {
      Tensor dy = on.in({33, 64}, 1, 0.3), w = on.in({64, n}, 2, 0.3), h = on.in({33, n}, 3);
      on.backend.matmul({.a = dy, .b = w, .c = on.out({33, n}), .write = write, .gelu_of = h});
      on.backend.matmul({.a = dy.transpose(0, 1),
                         .b = h,
                         .c = on.out({64, n}, on.sums),
                         .write = write,
                         .row_sums = on.out({64}, on.sums)});
    }
}

void softmaxes(On& on) {
  for (int64_t n : {1, 33, 1000, 5000}) {
    Tensor x = on.in({5, n}, 1, 4), dy = on.in({5, n}, 2);
    Tensor y = on.out({5, n}), z = on.out({5, n}, on.dtype, 1);
    on.backend.softmax(x, y);
    on.backend.log_softmax(x, z);
    on.backend.softmax_backward(y, dy, on.out({5, n}));
    on.backend.log_softmax_backward(z, dy, on.out({5, n}, on.dtype, 1));
  }
}

// Layer norm, and RMS norm, which has no mean and no beta.
void norms(On& on) {
  for (int64_t n : {1, 33, 768, 1000, 1600, 5000})
    for (bool centred : {true, false}) {
      const Shape rows = {n > 2000 ? 5 : 41}, shape = {rows[0], n};
      Norm norm{on.in(shape, 1, 2), on.in({n}, 2), {}, {}, on.out(rows, on.sums), 1e-3};
      if (centred) norm.beta = on.in({n}, 3), norm.mean = on.out(rows, on.sums);
      Tensor dy = on.in(shape, 4);
      on.backend.norm(norm, on.out(shape));
      if (n == 1) continue;  // the slopes of a constant: rounding, multiplied by 1 / sqrt(eps)
      for (Write write : {Write::set, Write::add}) {
        Norm both = norm;  // the weights' gradients from x and dy, and from parts if there are any
        both.parts = on.backend.norm_backward(norm, dy, on.out(shape), write);
        for (const Norm& from : {norm, both})
          on.backend.norm_backward_weights(from, dy, on.out({n}, on.sums),
                                           centred ? on.out({n}, on.sums) : Tensor(), write);
      }
    }
}

}  // namespace

std::vector<Case> row_cases() {
  return {{"matmul", 10, products},
          {"matmul_of_batches", 10, batches},
          {"matmul_with_epilogues", 4, epilogues},
          {"matmul_of_backward", 4, backward_products},
          {"softmax", 10, softmaxes},
          {"norm", 10, norms}};
}

}  // namespace triax::test
