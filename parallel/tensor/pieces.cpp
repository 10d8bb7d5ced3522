#include "triax/parallel/tensor/pieces.h"

#include <algorithm>

#include "triax/autograd/record.h"

namespace triax::parallel {
namespace {

/// Returns a view [shares, length, width] of the rows of a piece.
Tensor view_of(const Pieces& p, const Tensor& rows, int64_t c) {
  int64_t length = rows.size(0) / (p.shares * p.count);
  return rows.view({p.shares, p.count * length, -1}).narrow(1, c * length, length);
}

}  // namespace

Pieces Pieces::of(int64_t rows) const {
  int64_t most = std::clamp<int64_t>(rows, 1, std::max<int64_t>(count, 1));
  while (rows % most != 0) --most;
  return {shares, most};
}

Tensor Pieces::take(const Tensor& rows, int64_t c) const {
  Tensor x = rows.detach();
  return view_of(*this, x, c).contiguous().view({x.size(0) / count, x.size(1)});
}

void Pieces::put(const Tensor& piece, const Tensor& rows, int64_t c) const {
  Tensor place = view_of(*this, rows, c);
  copy_(place, piece.detach().view(place.shape()));
}

std::function<Tensor(int64_t)> Pieces::cut(const Tensor& x) const {
  struct Gradient {
    Tensor dx;
    int64_t missing;
  };
  return [=, p = *this, gradient = std::make_shared<Gradient>(Gradient{{}, count})](int64_t c) {
    auto rule = [=, shape = x.shape(), dtype = x.dtype()](const Tensor& dy) {
      if (!gradient->dx.defined()) gradient->dx = empty(shape, dtype, dy.device());
      p.put(dy, gradient->dx, c);
      return Tensors{--gradient->missing == 0 ? std::move(gradient->dx) : Tensor()};
    };
    return record("piece", p.take(x, c), {x}, std::move(rule));
  };
}

Tensor Pieces::join(const Tensors& pieces) const {
  const Tensor& first = pieces[0];
  Tensor y = empty({first.size(0) * count, first.size(1)}, first.dtype(), first.device());
  for (int64_t c = 0; c < count; ++c) put(pieces[size_t(c)], y, c);
  return record("join", y, pieces, [p = *this](const Tensor& dy) {
    Tensors parts;
    for (int64_t c = 0; c < p.count; ++c) parts.push_back(p.take(dy, c));
    return parts;
  });
}

Gathering::Gathering(Communicator& tp, const Pieces& pieces, Tensor mine)
    : tp_(tp),
      pieces_(pieces),
      mine_(std::move(mine)),
      parts_(size_t(pieces.count)),
      works_(size_t(pieces.count)) {}

const Tensor& Gathering::start(int64_t c) {
  Tensor& part = parts_[size_t(c)];
  if (part.defined()) return part;
  int64_t length = mine_.size(0) / pieces_.count;
  part = tp_.empty({length * pieces_.shares, mine_.size(1)}, mine_.dtype());
  works_[size_t(c)] = tp_.all_gather(mine_.narrow(0, c * length, length), part);
  return part;
}

Tensor Gathering::finish(int64_t c) {
  works_[size_t(c)].wait();
  return std::exchange(parts_[size_t(c)], {});
}

Tensor Gathering::take(int64_t c, int64_t beside) {
  start(c);
  if (beside >= 0 && beside < pieces_.count) start(beside);
  return finish(c);
}

Tensor Summing::add(const Tensor& part, int64_t c) {
  int64_t length = part.size(0) / pieces_.shares;
  if (!sums_.defined()) sums_ = tp_.empty({length * pieces_.count, part.size(1)}, part.dtype());
  Tensor to = sums_.narrow(0, c * length, length);
  if (pieces_.shares > 1) {
    works_.push_back(tp_.reduce_scatter(part.detach(), to));
  } else {
    copy_(to, part.detach());
    works_.push_back(tp_.all_reduce(to));
  }
  return int64_t(works_.size()) == pieces_.count ? std::move(sums_) : Tensor();
}

void Summing::wait() {
  for (Work& w : works_) w.wait();
  works_.clear();
}

}  // namespace triax::parallel
