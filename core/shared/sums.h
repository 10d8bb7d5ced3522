#pragma once
#include <memory>

#include "triax/core/backend.h"

namespace triax {

/// Says where a kernel puts sums that it makes over rows, or over the inner dim of a product.
struct Sums {
  Tensor to;  ///< undefined: they are not wanted
  Write write = Write::set;
  /// Null: a sum is made at once and rounded to `to`. Else `to` is f64, and a sum is made in
  /// `terms` equal parts, one behind the other: each is rounded to the grid and added, which is
  /// exact. The bits depend on the parts alone, neither on their order nor on who adds which.
  std::shared_ptr<const FixedPoint> grid = {};
  int64_t terms = 1;
  /// Says of what the terms are equal parts; a kernel that cuts something else gets no such Sums.
  enum class Over { rows, features } over = Over::rows;
  /// On a grid: so many equal groups of columns are summed each as if it were alone, since others
  /// may be elsewhere. (Kernels sum wide columns in other pieces than narrow ones.)
  int64_t groups = 1;
};

/// dw = or += dy^T x, the gradient of w in y = x w^T, and db, the sums of dy's columns. dy [rows,
/// out] and x [rows, in], contiguous; their terms are of rows.
struct WeightGradient {
  Tensor dy, x;
  Sums dw, db;
};
void make(const WeightGradient& g);

/// y = or += x w^T of contiguous x [rows, in] and w [out, in], on a grid: terms of `in`.
void multiply_on_grid(const Tensor& x, const Tensor& w, const Sums& y);
/// dx = or += dy w of contiguous dy [rows, out] and w [out, in], on a grid: terms of `out`.
void input_gradient_on_grid(const Tensor& dy, const Tensor& w, const Sums& dx);

/// y [columns] = or += the sums of the columns of x [rows, columns], contiguous.
void sum_rows(const Tensor& x, const Sums& y);
/// Backend::norm_backward_weights, with terms of rows. dbeta.to is undefined for RMS norm.
void norm_backward_weights(const Norm& n, const Tensor& dy, const Sums& dgamma, const Sums& dbeta);
/// Backend::embedding_backward, with terms of ids [rows] and dy [rows, width].
void embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first, const Sums& dtable);

}  // namespace triax
