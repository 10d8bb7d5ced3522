#include "triax/parallel/data/gradient_norm.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "triax/parallel/comm/together.h"

namespace triax::parallel {

void squares(const Tensor& x, const Tensor& sums) {
  Tensor here = x.to(sums.device());
  backend(here).squares(here, sums);
}

namespace {

double non_finite(const Tensor& x, Device device) {
  Tensor sums = zeros({2}, f64, device);
  squares(x, sums);
  return sums.to(cpu).to_host<double>()[1];
}

}  // namespace

// Adds squares of the elements that count here, and non-finite elements anywhere. The norm alone
// would be no vote: an inf in a tied copy or a replica is not in it.
void GradientNorm::add_squares(const Tensor& sums) const {
  auto add = [&](const Tensor& x, const Tensor& to) {
    if (m_.options.bitwise) backend(x).squares_fixed(x, to);
    else squares(x, to);
  };
  int64_t last = sums.numel() - 1;
  Tensor rest = zeros(sums.shape(), f64, sums.device());
  for (auto& b : m_.trained()) {
    auto held = b->my_grad.storage()->hold(Access::read);
    for (bool owned : {true, false})
      for (const Range& r : b->mine([&](auto& p) { return m_.owns(p) == owned; }))
        add(b->my_grad.narrow(0, r.begin, r.end - r.begin), owned ? sums : rest);
  }
  backend(sums).accumulate(rest.narrow(0, last, 1), sums.narrow(0, last, 1));
}

GradientNorm::Norm GradientNorm::norm() const {
  Tensor sums = zeros({m_.options.bitwise ? WideSum::words + 1 : 2}, f64, m_.dp.device());
  add_squares(sums);
  m_.all->all_reduce(sums).wait();
  auto v = sums.to_host<double>();
  if (m_.options.bitwise) v = {WideSum::value(v.data()), v.back()};
  return norm_of(v);
}

GradientNorm::Norm GradientNorm::norm_of(std::span<const double> sums) {
  bool finite = sums[1] == 0;
  return {finite ? std::sqrt(sums[0]) : std::numeric_limits<double>::infinity(), sums[1]};
}

void GradientNorm::look_at(const Bucket& b, size_t piece) {
  if (!watching_ || seen_) return;
  auto& [p, begin, length, first] = b.layout.pieces[piece];
  if (non_finite(b.grad.narrow(0, begin, length), m_.dp.device()) == 0) return;
  auto at = std::find(m_.declared.begin(), m_.declared.end(), p) - m_.declared.begin();
  seen_ = {size_t(at), (b.fired[piece] - 1) / b.layout.passes};
}

GradientNorm::NonFinite GradientNorm::first_non_finite() const {
  Communicator& all = *m_.all;
  auto smallest = [&](double mine) { return reduced(all, mine, ReduceOp::min); };
  constexpr double none = std::numeric_limits<double>::infinity();
  // Micro-batches in order, stages from the last: there a backward begins.
  int64_t last_first = all.size() - 1 - all.rank();
  double order = smallest(seen_ ? double(seen_->micro * all.size() + last_first) : none);
  bool watched = order != none;
  std::vector<size_t> bad;
  if (watched && seen_ && double(seen_->micro * all.size() + last_first) == order)
    bad.push_back(seen_->parameter);
  if (!watched)
    m_.each_gradient(&Bucket::my_grad, [&](size_t i, const Tensor& gradient) {
      if (non_finite(gradient, m_.dp.device()) > 0) bad.push_back(i);
    });
  double first = smallest(bad.empty() ? none : double(bad[0]));
  if (first == none) return {};
  double rank = smallest(!bad.empty() && double(bad[0]) == first ? all.rank() : none);
  return {m_.declared[size_t(first)]->name, int(rank),
          watched ? int64_t(order) / all.size() : int64_t{-1}};
}

}  // namespace triax::parallel
