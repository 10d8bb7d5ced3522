#include "triax/autograd/ops/common.h"

namespace triax {
namespace {

using autograd::Into;
using autograd::rows_of;

/// A batch norm between its forward and its backward, for all groups. Moments f64 [groups,
/// channels].
struct Normalization {
  Tensor x;           // [groups, rows, channels]
  Tensor gamma;       // as x [channels]
  Tensor mean, rstd;  // f64 [groups, channels]
  BatchNormShape over;
  double inverse_rows;  // 1 / rows of a group over all ranks; 0 if mean and rstd were given
};

Tensor in_f64(const Tensor& x) { return x.detach().contiguous().to(f64); }

Tensor rstd_of(const Tensor& variance, double eps) {
  Tensor v = variance + eps;
  return sqrt(v) / v;
}

/// Returns f64 [groups, 2, channels]: the sums of p and of p z over this rank's rows of each group.
Tensor sums_of(const Tensor& p, const Tensor& z) {
  Tensor sums = empty({p.size(0), 2, p.size(2)}, f64, p.device());
  Shape rows{p.size(1), p.size(2)}, pair{2, p.size(2)};
  for (int64_t g = 0; g < p.size(0); ++g)
    backend(p).channel_sums(p.narrow(0, g, 1).view(rows), z.narrow(0, g, 1).view(rows),
                            sums.narrow(0, g, 1).view(pair));
  return sums;
}
/// Returns the sums of p (i = 0) or of p z (i = 1), [groups, channels].
Tensor part(const Tensor& sums, int64_t i) {
  return sums.narrow(1, i, 1).contiguous().view({sums.size(0), sums.size(2)});
}

/// The factors of y = a x + b (z - m) + c, group by group: f64 [groups, channels].
struct Factors {
  Tensor a, b, m, c;
};
Tensor affine(const Tensor& x, const Tensor& z, const Factors& f) {
  Tensor a = f.a.defined() ? f.a : f.b;  // not read
  Tensor k = stack({a, f.b, f.m, f.c}, 1).to(accumulator(z.dtype()));
  Tensor y = empty(z.shape(), z.dtype(), z.device());
  Shape rows{z.size(1), z.size(2)}, four{4, z.size(2)};
  for (int64_t g = 0; g < z.size(0); ++g) {
    auto of = [&](const Tensor& t, const Shape& s) { return t.narrow(0, g, 1).view(s); };
    backend(z).channel_affine(x.defined() ? of(x, rows) : x, of(z, rows), of(k, four), of(y, rows));
  }
  return y;
}

/// Sums `of`, f64 [groups, channels], over groups: dL/dgamma or dL/dbeta.
Tensor over_groups(const Tensor& of, size_t input, DType dtype, Into& into) {
  auto [d, write] = into.at(input, {of.size(1)}, dtype, of.device());
  Tensor total = sum(of, {0}).to(dtype);
  if (write == Write::add) backend(d).accumulate(total, d);
  else copy_(d, total);
  return d;
}

/// Returns the gradients. With xhat = (x - mean) rstd and means over the rows of a group, dx =
/// gamma rstd (dy - mean(dy) - xhat mean(dy xhat)); given statistics lack both means.
Tensors backward_of(const Normalization& n, const Tensor& given, Into& into) {
  Tensor dy = given.contiguous().view(n.x.shape()), sums = sums_of(dy, n.x);
  auto with_xhat = [&](const Tensor& s) { return n.rstd * (part(s, 1) - n.mean * part(s, 0)); };
  DType weights = accumulator(n.x.dtype());
  Tensors d(3);
  if (into.wanted(1)) d[1] = over_groups(with_xhat(sums), 1, weights, into);
  if (into.wanted(2)) d[2] = over_groups(part(sums, 0), 2, weights, into);
  if (!into.wanted(0)) return d;
  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);
  Tensor a = in_f64(n.gamma) * n.rstd;
  Tensor b = a * n.rstd * with_xhat(sums) * -n.inverse_rows;
  Tensor c = a * part(sums, 0) * -n.inverse_rows;
  d[0] = affine(dy, n.x, {a, b, n.mean, c}).view(given.shape());
  return d;
}

/// Fills in mean and rstd; returns the variance.
Tensor measure(Normalization& n) {
  Tensor sums = sums_of(n.x, n.x);
  if (n.over.ranks > 1) n.over.sum_over_ranks(sums);
  n.mean = part(sums, 0) * n.inverse_rows;
  // In f64 this is exact to 1e-16 of the mean square: enough where |mean| is below 1e5 standard
  // deviations. Below 0 it is rounding alone.
  Tensor variance = relu(part(sums, 1) * n.inverse_rows - n.mean * n.mean);
  n.rstd = rstd_of(variance, n.over.eps);
  return variance;
}

Tensor normalize(const Tensor& x, const Tensor& gamma, const Tensor& beta, const Normalization& n) {
  Tensor b = in_f64(gamma) * n.rstd;
  return affine({}, n.x, {{}, b, n.mean, expand(in_f64(beta), b.shape()).contiguous()})
      .view(x.shape());
}

Tensor recorded(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta,
                const Normalization& n) {
  Tensor y = record(
      op, normalize(x, gamma, beta, n), {x, gamma, beta},
      autograd::Rule([n](const Tensor& dy, Into& into) { return backward_of(n, dy, into); }));
  note_kept(y, {n.mean});
  return y;
}

void check_weights(const char* op, const Tensor& x, const Tensor& gamma, const Tensor& beta) {
  autograd::check_float(op, x);
  for (auto& w : {gamma, beta}) {
    autograd::check_same(op, x, w);
    check(x.rank() >= 2 && w.shape() == Shape{x.size(-1)},
          "{}: weight {} for x {}; expected [channels] for [.., channels]", op, w.shape(),
          x.shape());
  }
}

}  // namespace

BatchNormed batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchNormShape& shape) {
  check_weights("batch_norm", x, gamma, beta);
  Tensor all = rows_of(x);
  int64_t groups = shape.groups, rows = groups > 0 ? all.size(0) / groups : 0;
  check(rows > 0 && rows * groups == all.size(0) && shape.eps > 0,
        "batch_norm: x {} in {} groups, eps {}; expected rows in every group, as many in each, and "
        "eps above 0",
        x.shape(), groups, shape.eps);
  check(shape.ranks == 1 || (shape.ranks > 1 && groups == 1 && shape.sum_over_ranks),
        "batch_norm: statistics over {} ranks of {} groups; expected one group and sum_over_ranks",
        shape.ranks, groups);
  Normalization n{.x = all.view({groups, rows, x.size(-1)}),
                  .gamma = gamma.detach(),
                  .over = shape,
                  .inverse_rows = 1 / double(rows * shape.ranks)};
  Tensor variance = measure(n);
  return {recorded("batch_norm", x, gamma, beta, n), n.mean, variance};
}

Tensor batch_norm_with(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchMoments& moments) {
  const char* op = "batch_norm_with";
  check_weights(op, x, gamma, beta);
  for (auto& m : {moments.mean, moments.variance})
    check(m.defined() && m.shape() == gamma.shape() && m.device() == x.device() &&
              is_float(m.dtype()) && moments.eps > 0,
          "{}: {}, eps {}, for x {}; expected floats [channels] on its device, and eps above 0", op,
          m, moments.eps, x.shape());
  Shape one{1, x.size(-1)};
  Tensor rows = rows_of(x);
  Normalization n{.x = rows.view({1, rows.size(0), rows.size(1)}),
                  .gamma = gamma.detach(),
                  .mean = in_f64(moments.mean).view(one),
                  .rstd = rstd_of(in_f64(moments.variance), moments.eps).view(one),
                  .inverse_rows = 0};
  return recorded(op, x, gamma, beta, n);
}

}  // namespace triax
