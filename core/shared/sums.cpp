#include "triax/core/shared/sums.h"

#include "triax/core/check.h"

namespace triax {
namespace {

Tensor part_of(const Tensor& x, Range r) {
  return x.defined() ? x.narrow(0, r.begin, r.end - r.begin) : x;
}

/// Calls `use` with the rows of each term.
template <class F> void each_term(const Sums& s, int64_t rows, F use) {
  check(rows % s.terms == 0, "sums: {} rows in {} terms; expected a multiple", rows, s.terms);
  for (int64_t t = 0, each = rows / s.terms; t < s.terms; ++t) use(Range{t * each, (t + 1) * each});
}
/// Returns how the term that begins with row `first` is written.
Write write_of(const Sums& s, int64_t first) { return first == 0 ? s.write : Write::add; }

/// Adds to `s`, if it is wanted, what the term comes to that begins with row `first`.
void put(const Tensor& term, const Sums& s, int64_t first) {
  if (!s.to.defined()) return;
  Write write = write_of(s, first);
  if (s.grid) backend(s.to).accumulate_fixed(term, *s.grid, s.to, write);
  else if (write == Write::add) backend(s.to).accumulate(term, s.to);
  else copy_(s.to, term);
}

/// Makes sums over rows by make(rows, to, write): straight into s.to, or on a grid term by term.
template <class F> void in_terms(const Sums& s, int64_t rows, DType dtype, F make) {
  if (!s.to.defined()) return;
  if (!s.grid) return make(Range{0, rows}, s.to, s.write);
  Tensor term = empty(s.to.shape(), dtype, s.to.device());
  each_term(s, rows, [&](Range part) {
    make(part, term, Write::set);
    put(term, s, part.begin);
  });
}

/// Returns the n slices of x's columns [n, rows, columns / n]; x is contiguous.
Tensor columns_of(const Tensor& x, int64_t n) {
  check(x.size(1) % n == 0, "sums: {} features in {} terms; expected a multiple", x.size(1), n);
  return x.view({x.size(0), n, x.size(1) / n}).transpose(0, 1);
}

/// c.to = or += the sum of the products a b of a batch, each rounded.
void add_products(const Tensor& a, const Tensor& b, const Sums& c) {
  Tensor to = c.to.view({1, a.size(1), b.size(2)}).expand({a.size(0), a.size(1), b.size(2)});
  backend(a).matmul({.a = a, .b = b, .c = to, .write = c.write, .rounding = c.grid.get()});
}

}  // namespace

void make(const WeightGradient& g) {
  bool one = g.dw.to.defined() && !g.dw.grid;
  bool together = one && g.db.to.defined() && !g.db.grid && g.dw.write == g.db.write;
  auto product = [&](Range rows) {
    backend(g.x).matmul({.a = part_of(g.dy, rows).transpose(0, 1),
                         .b = part_of(g.x, rows),
                         .c = g.dw.to,
                         .write = write_of(g.dw, rows.begin),
                         .row_sums = together ? g.db.to : Tensor(),
                         .rounding = g.dw.grid.get()});
  };
  if (g.dw.to.defined()) each_term(g.dw, g.x.size(0), product);
  if (!together) sum_rows(g.dy, g.db);
}

void multiply_on_grid(const Tensor& x, const Tensor& w, const Sums& y) {
  add_products(columns_of(x, y.terms), columns_of(w, y.terms).transpose(1, 2), y);
}

void input_gradient_on_grid(const Tensor& dy, const Tensor& w, const Sums& dx) {
  Tensor slices = columns_of(dy, dx.terms);
  add_products(slices, w.view({dx.terms, w.size(0) / dx.terms, w.size(1)}), dx);
}

void sum_rows(const Tensor& x, const Sums& y) {
  int64_t n = y.grid ? y.groups : 1, columns = x.size(1);
  in_terms(y, x.size(0), accumulator(x.dtype()), [&](Range rows, const Tensor& to, Write write) {
    Tensor part = part_of(x, rows);
    if (n == 1) return backend(x).sum(part, to.view({1, columns}), write);
    Tensor groups = part.view({part.size(0), n, columns / n}).transpose(0, 1).contiguous();
    backend(x).sum(groups, to.view({n, 1, columns / n}), write);
  });
}

void norm_backward_weights(const Norm& n, const Tensor& dy, const Sums& dgamma, const Sums& dbeta) {
  bool shift = n.mean.defined(), all = dgamma.to.defined() && (!shift || dbeta.to.defined());
  bool plain = !dgamma.grid && !dbeta.grid;
  if (all && plain && (!shift || dgamma.write == dbeta.write))
    return backend(dy).norm_backward_weights(n, dy, dgamma.to, dbeta.to, dgamma.write);
  if (all && shift && dgamma.terms != dbeta.terms) {  // each in its own
    norm_backward_weights(n, dy, dgamma, {});
    return norm_backward_weights(n, dy, {}, dbeta);
  }
  const Sums& wanted = dgamma.to.defined() ? dgamma : dbeta;
  if (!wanted.to.defined()) return;
  Tensor gamma = empty({dy.size(-1)}, accumulator(dy.dtype()), dy.device());
  Tensor beta = shift ? empty_like(gamma) : Tensor();
  each_term(wanted, dy.size(0), [&](Range rows) {
    Norm part = n;
    for (Tensor* kept : {&part.x, &part.mean, &part.rstd}) *kept = part_of(*kept, rows);
    backend(dy).norm_backward_weights(part, part_of(dy, rows), gamma, beta, Write::set);
    put(gamma, dgamma, rows.begin);
    put(beta, dbeta, rows.begin);
  });
}

void embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first, const Sums& dtable) {
  in_terms(
      dtable, dy.size(0), accumulator(dy.dtype()), [&](Range rows, const Tensor& to, Write write) {
        backend(dy).embedding_backward(part_of(ids, rows), part_of(dy, rows), first, to, write);
      });
}

}  // namespace triax
