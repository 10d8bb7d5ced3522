#include <algorithm>
#include <cmath>
#include <numeric>

#include "triax/autograd/ops/common.h"

namespace triax {

using autograd::Into;

Tensor top_k(const Tensor& x, int64_t k) {
  autograd::check_float("top_k", x);
  check(x.rank() == 2 && k >= 1 && k <= x.size(1), "top_k: {} of {}; expected 1 to n of [rows, n]",
        k, x);
  int64_t rows = x.size(0), n = x.size(1);
  if (x.device() == meta_device) return empty({rows, k}, i32, x.device());
  auto values = x.detach().contiguous().to(cpu).to(f64).to_host<double>();
  std::vector<int32_t> chosen(size_t(rows * k)), order(static_cast<size_t>(n));
  for (int64_t r = 0; r < rows; ++r) {
    const double* row = values.data() + r * n;
    auto before = [row](int32_t a, int32_t b) {
      bool nan_a = std::isnan(row[a]), nan_b = std::isnan(row[b]);
      if (nan_a != nan_b) return nan_b;
      return row[a] > row[b] || (!(row[b] > row[a]) && a < b);
    };
    std::iota(order.begin(), order.end(), 0);
    std::partial_sort(order.begin(), order.begin() + k, order.end(), before);
    std::copy_n(order.begin(), k, chosen.begin() + r * k);
  }
  return from_host(chosen, {rows, k}, x.device());
}

Grouping grouped(const Tensor& index, int64_t groups) {
  check(index.defined() && index.dtype() == i32 && groups >= 1,
        "grouped: {} in {} groups; expected i32, and 1 at least", index, groups);
  int64_t n = index.numel();
  Grouping g{.counts = std::vector<int64_t>(size_t(groups))};
  if (index.device() == meta_device) {
    for (int64_t e = 0; e < groups; ++e) g.counts[size_t(e)] = n / groups + (e < n % groups);
    g.order = g.place = empty({n}, i32, index.device());
    return g;
  }
  autograd::check_range("grouped", index, groups);
  auto group_of = index.contiguous().to_host<int32_t>();
  for (int32_t e : group_of) ++g.counts[size_t(e)];
  std::vector<int64_t> at(size_t(groups), 0);
  std::partial_sum(g.counts.begin(), g.counts.end() - 1, at.begin() + 1);
  std::vector<int32_t> order(group_of.size()), place(group_of.size());
  for (size_t i = 0; i < group_of.size(); ++i) {
    int64_t to = at[size_t(group_of[i])]++;
    order[size_t(to)] = int32_t(i), place[i] = int32_t(to);
  }
  g.order = from_host(order, {n}, index.device());
  g.place = from_host(place, {n}, index.device());
  return g;
}

Tensor attach_loss(const Tensor& y, const Tensor& loss, double seed) {
  autograd::check_float("attach_loss", y);
  autograd::check_float("attach_loss", loss);
  check(loss.numel() == 1, "attach_loss: loss {}; expected one element", loss);
  if (seed == 0) return y;
  return record("attach_loss", y.detach(), {y, loss},
                [seed, s = loss.shape(), dtype = loss.dtype()](const Tensor& dy, Into& into) {
                  Tensors d{dy, {}};
                  if (into.wanted(1)) d[1] = full(s, seed, dtype, dy.device());
                  return d;
                });
}

}  // namespace triax
