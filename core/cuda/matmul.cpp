#include <algorithm>
#include <optional>
#include <utility>

#include "triax/core/check.h"
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/libraries/blas.h"
#include "triax/core/cuda/libraries/tuning.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/devices.h"
#include "triax/core/shared/strides.h"

// Products by cuBLASLt, which is column-major: a row-major c [m, n] is its c^T [n, m] = b^T a^T,
// and a bias over n stands along the columns, as its epilogue needs it. Where the library has no
// epilogue, other kernels work before or after the product.

namespace triax::cuda::TRIAX_TARGET {
namespace {

/// A matrix as sizes and strides.
struct Matrix {
  int64_t rows, cols, row, col;

  explicit Matrix(const Tensor& x)
      : rows(x.size(-2)), cols(x.size(-1)), row(x.strides()[-2]), col(x.strides()[-1]) {}
  Matrix transposed() const {
    Matrix t = *this;
    std::swap(t.rows, t.cols);
    std::swap(t.row, t.col);
    return t;
  }
  /// True if whole columns lie one after another. Strides of sizes of 1 do not count.
  bool in_columns() const { return (rows == 1 || row == 1) && (cols == 1 || col >= rows); }
  bool readable() const { return in_columns() || transposed().in_columns(); }
  Columns columns() const { return {.ld = cols == 1 ? rows : col}; }
  /// Returns the columns of this or of its transpose, whichever are longer.
  Columns either() const {
    Matrix t = transposed();
    if (!t.in_columns() || (in_columns() && rows >= cols)) return columns();
    Columns c = t.columns();
    c.transposed = true;
    return c;
  }
};

bool readable(const Tensor& x) { return Matrix(x).readable(); }

/// A Matmul in the library's terms: one strided batch for every element of `outer`.
struct Plain {
  ColumnProduct product;
  Addresses at;
  Strides<3> outer;  // of the library's a, b and d
};

/// Makes the longest of the batch's dims the library's; all others are walked.
void split_batch(const Strides<3>& batch, Plain& x) {
  int longest = 0;
  for (int d = 1; d < batch.rank; ++d)
    if (batch.size[d] > batch.size[longest]) longest = d;
  for (int d = 0; d < batch.rank; ++d)
    if (d != longest) x.outer.push(batch.size[d], batch.stride[d]);
  if (batch.rank == 0) return;
  x.product.batches = batch.size[longest];
  x.product.a.step = batch.stride[longest][0];
  x.product.b.step = batch.stride[longest][1];
  x.product.d.step = batch.stride[longest][2];
}

/// Returns the alignment of every matrix of a batch.
int alignment(const Tensor& x) {
  uintptr_t bits = reinterpret_cast<uintptr_t>(x.data());
  for (int d = 0; d < x.rank() - 2; ++d)
    if (x.size(d) > 1) bits |= uintptr_t(x.strides()[d]) * size_of(x.dtype());
  return alignment_of(bits);
}

/// True if the library can read or write `x`, a row of numbers, beside the product.
bool beside(const Tensor& x) {
  return (x.strides()[0] == 1 || x.size(0) == 1) && alignment(x) >= 16;
}

/// Returns the elements from one column to the next of a matrix like c; 0 if it is not usable so.
int64_t aux_ld(const Tensor& x) {
  Matrix columns = Matrix(x).transposed();
  int64_t ld = columns.in_columns() ? columns.columns().ld : 0;
  return ld % 8 == 0 && alignment(x) >= 16 ? ld : 0;
}

/// Adds the epilogue; false if the library has none for it.
bool add_epilogue(const Matmul& p, bool swapped, Plain& x) {
  using enum Epilogue;
  const Tensor& aux = p.before.defined() ? p.before : p.gelu_of;
  const Tensor& row = p.bias.defined() ? p.bias : p.row_sums;
  if (!aux.defined() && !row.defined()) return true;
  if (!swapped || p.a.dtype() == f64) return false;
  if (p.row_sums.defined()) {
    if (aux.defined() || !beside(row)) return false;
    x.product.epilogue = bgrad;
    x.at.bias = row.data();
    return true;
  }
  if (p.c.dtype() != p.a.dtype()) return false;
  if (row.defined()) {
    if (!beside(row)) return false;
    x.product.epilogue = bias;
    x.at.bias = row.data();
  }
  if (aux.defined()) {
    x.product.aux_ld = aux_ld(aux);
    if (p.a.dtype() == f32 || p.write == Write::add || x.product.aux_ld == 0) return false;
    x.product.epilogue = p.gelu_of.defined() ? dgelu : row.defined() ? bias_gelu : gelu;
    x.at.aux = aux.data();
  }
  return true;
}

/// Returns nothing if the library cannot do all of it at once. a and b must be readable.
std::optional<Plain> translate(const Matmul& p) {
  Matrix c(p.c), d = c.transposed();
  bool swapped = d.in_columns();
  if (!swapped) d = c;
  check(d.in_columns(), "matmul: result {} with strides {}; expected whole rows or columns",
        p.c.shape(), p.c.strides());
  const Tensor &left = swapped ? p.b : p.a, &right = swapped ? p.a : p.b;
  Matrix a(left), b(right);
  if (swapped) a = a.transposed(), b = b.transposed();

  Plain x{.product = {.m = d.rows,
                      .n = d.cols,
                      .k = a.cols,
                      .a = a.either(),
                      .b = b.either(),
                      .d = d.columns(),
                      .in = p.a.dtype(),
                      .out = p.c.dtype(),
                      .add = p.write == Write::add,
                      .timed = tuning_of(p.a.dtype()) == Tuning::timed},
          .at = {left.data(), right.data(), p.c.data()},
          .outer = {}};
  x.product.a.alignment = alignment(left);
  x.product.b.alignment = alignment(right);
  x.product.d.alignment = alignment(p.c);
  Strides<3> batch;
  for (int i = 0; i < p.c.rank() - 2; ++i)
    batch.push(p.c.size(i), {left.strides()[i], right.strides()[i], p.c.strides()[i]});
  split_batch(batch, x);
  if (!add_epilogue(p, swapped, x)) return {};
  return x;
}

/// Returns false, having done nothing, if the library refuses.
bool multiply_all(int index, const Plain& x) {
  constexpr int64_t most = 65535;  // matrices at once; a grid's z ends there
  size_t in = size_of(x.product.in), out = size_of(x.product.out);
  for (int64_t i = 0; i < x.outer.numel; ++i) {
    int64_t at[3];
    x.outer.at(i, at);
    for (int64_t first = 0; first < x.product.batches; first += most) {
      ColumnProduct part = x.product;
      part.batches = std::min(most, x.product.batches - first);
      auto offset = [&](int of, int64_t step, size_t size) {
        return (at[of] + first * step) * int64_t(size);
      };
      Addresses to = x.at;
      to.a = static_cast<const char*>(to.a) + offset(0, part.a.step, in);
      to.b = static_cast<const char*>(to.b) + offset(1, part.b.step, in);
      to.d = static_cast<char*>(to.d) + offset(2, part.d.step, out);
      if (!multiply(index, part, to)) return false;
    }
  }
  return true;
}

Tensor room(const Tensor& like, DType dtype) { return empty(like.shape(), dtype, like.device()); }

/// Stores the bias first and adds the product to it: rounded once.
void multiply_after_bias(Backend& on, const Matmul& p) {
  Tensor bias = p.bias.detach().expand(p.c.shape());
  if (p.write == Write::set) {
    on.copy(bias, p.c);
    return on.matmul({p.a, p.b, p.c, Write::add});
  }
  Tensor sums = room(p.c, accumulator(p.c.dtype()));
  on.copy(bias, sums);
  on.matmul({p.a, p.b, sums, Write::add});
  Tensor c = p.c.is_contiguous() ? p.c : room(p.c, p.c.dtype());
  if (!c.is(p.c)) on.copy(p.c, c);
  on.accumulate(sums, c);
  if (!c.is(p.c)) on.copy(c, p.c);
}

/// Takes gelu of the rounded sums that are kept.
void multiply_then_gelu(Backend& on, const Matmul& p) {
  if (p.write == Write::add) {
    Tensor sums = room(p.c, accumulator(p.c.dtype()));
    on.copy(p.c, sums);
    on.matmul({p.a, p.b, sums, Write::add, p.bias});
    on.copy(sums, p.before);
  } else {
    on.matmul({p.a, p.b, p.before, Write::set, p.bias});
  }
  if (p.before.dtype() == p.c.dtype() && p.before.is_contiguous() && p.c.is_contiguous())
    return on.unary(Unary::gelu, p.before, p.c);
  Tensor x = room(p.c, p.c.dtype());
  on.copy(p.before, x);
  on.unary(Unary::gelu, x, x);
  on.copy(x, p.c);
}

/// Runs the epilogue by other kernels.
void multiply_outside(Backend& on, const Matmul& p) {
  if (p.has_backward_extras()) return matmul_in_steps(on, p);
  multiply_then_gelu(on, p);
}

/// Runs the epilogue inside of the product. Returns false, having done nothing, if it is refused.
bool multiply_inside(Backend& on, int index, const Matmul& p, Plain x) {
  bool adds = p.row_sums.defined() && p.write == Write::add;  // the library only stores sums
  Tensor sums = adds ? room(p.row_sums, p.row_sums.dtype()) : p.row_sums;
  if (sums.defined()) x.at.bias = sums.data();
  if (!multiply_all(index, x)) return false;
  if (adds) on.accumulate(sums, p.row_sums);
  return true;
}

/// Measures whether it is faster inside. Runs only where the result may be written often.
bool faster_inside(Backend& on, int index, Matmul trial) {
  cudaStream_t stream = context(index).stream();
  if (trial.write == Write::add) {
    trial.c = room(trial.c, trial.c.dtype());
    if (trial.row_sums.defined()) trial.row_sums = room(trial.row_sums, trial.row_sums.dtype());
  }
  std::optional<Plain> x = translate(trial);
  if (!x) return false;
  float inside = time_of(stream, [&] { return multiply_inside(on, index, trial, *x); });
  return inside < time_of(
                      stream, [&] { return multiply_outside(on, trial), true; });
}

/// True if the epilogue is done inside of the product: where nothing is timed, if possible, but for
/// sums, which slow some products down. Inside it takes the product before it is rounded, so its
/// bits are others.
bool pays_inside(Backend& on, int index, const Matmul& p, const Plain& x) {
  static Decisions<std::pair<int, ColumnProduct>, bool> decisions;
  cudaStream_t stream = context(index).stream();
  if (!x.product.timed) return x.product.epilogue != Epilogue::bgrad;
  return decisions.of({index, x.product}, stream, [&] {
    if (is_captured(stream)) return false;  // nothing may be tried
    try {
      return faster_inside(on, index, p);
    } catch (const Error& e) {
      if (e.code() == Exit::memory) return false;  // no room to try it
      throw;
    }
  });
}

/// Multiplies, with epilogue.
void multiply_and_more(Backend& on, int index, const Matmul& p) {
  if (p.rounding) return multiply_outside(on, p);
  bool nothing = p.c.numel() == 0 || p.a.size(-1) == 0;
  std::optional<Plain> x = nothing ? std::nullopt : translate(p);
  if (x && pays_inside(on, index, p, *x) && multiply_inside(on, index, p, *x)) return;
  multiply_outside(on, p);
}

}  // namespace

void Cuda::matmul(const Matmul& p) {
  if (p.c.numel() == 0 && !p.row_sums.defined()) return;
  if (!readable(p.a) || !readable(p.b)) {  // neither rows nor columns are apart from each other
    Matmul copies = p;
    for (Tensor* x : {&copies.a, &copies.b})
      if (!readable(*x)) {
        Tensor whole = room(*x, x->dtype());
        copy(*x, whole);
        *x = whole;
      }
    return matmul(copies);
  }
  if (p.before.defined() || p.has_backward_extras()) return multiply_and_more(*this, index_, p);
  bool empty_sum = p.a.size(-1) == 0;
  std::optional<Plain> at_once = empty_sum ? std::nullopt : translate(p);
  if (at_once && multiply_all(index_, *at_once)) return;
  if (p.bias.defined()) return multiply_after_bias(*this, p);
  check(empty_sum, "matmul: cuBLASLt multiplies no {} by {} with strides {} and {} into {}", p.a,
        p.b, p.a.strides(), p.b.strides(), p.c);
  if (p.write == Write::set) fill(p.c, 0);
}

void Cuda::matmul_onto(const Matmul& p, const Tensor& rest) {
  Matmul added = p;
  added.write = Write::add;
  bool whole = p.c.rank() == 2 && p.c.numel() > 0 && p.a.size(1) > 0 && p.c.is_contiguous();
  if (whole && readable(p.a) && readable(p.b)) {
    std::optional<Plain> x = translate(added);
    if (x && alignment(rest) >= x->product.d.alignment) {
      x->at.c = rest.data();
      if (multiply_all(index_, *x)) return;
    }
  }
  Backend::matmul_onto(p, rest);
}

}  // namespace triax::cuda::TRIAX_TARGET
