#include "triax/parallel/tensor/tensor_parallel.h"

#include <algorithm>
#include <optional>

#include "triax/autograd/ops.h"
#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Returns the dtype in which parts of a sum are made, sent and added. A part may exceed fp16's
/// range where the sum does not; bf16's and fp32's range is too large for that.
DType dtype_of_sums(DType values) { return values == f16 ? accumulator(values) : values; }

/// Returns the first dozen multiples of `step` up to `most` that divide n.
std::string divisors(int64_t n, int64_t step, int64_t most) {
  std::vector<int64_t> found;
  for (int64_t d = step; d <= std::min(n, most) && found.size() < 12; d += step)
    if (n % d == 0) found.push_back(d);
  return join(found, ", ");
}

/// Returns the gradient of an input of `dtype`, rounded once: after it was added to what is there.
Tensor rounded(const Tensor& dx, DType dtype, autograd::Into& into) {
  if (dx.dtype() == dtype) return dx;
  auto [y, write] = into.at(0, dx.shape(), dtype, dx.device());
  if (write == Write::add) backend(dx).accumulate(dx, y);
  else copy_(y, dx);
  return y;
}

/// Records y, the rounded sum of parts, and bias if there is one.
Tensor left(Tensor y, const Tensors& parts, const Tensor& bias, autograd::Rule rule) {
  return record("leave", std::move(y), parts, std::move(rule), {bias},
                bias.defined() ? autograd::bias_rule(bias) : autograd::Rule());
}

/// Returns y + bias where the parts, in another dtype than y is to have, have none inside.
Tensor with_bias(Tensor y, const Tensor& bias, DType dtype) {
  NoGrad guard;
  if (bias.defined() && y.dtype() != dtype) y = y + bias.detach().to(y.dtype());
  return y.to(dtype);
}

// Joins rows. Outside, ranks have [samples][share] of all rows [samples][ranks][share]; collectives
// see [ranks][samples][share].
Tensor joined_columns(const TensorParallel& tp, const Tensor& x) {
  Shape all = x.shape();
  all[0] *= tp.size();
  Tensor y = tp.comm().empty(all, x.dtype());
  tp.comm().all_gather(x.detach().contiguous(), y).wait();
  return y;
}

Tensor gathered(const TensorParallel& tp, const Tensor& x) {
  Tensor y = joined_columns(tp, x);
  int64_t samples = tp.samples_apart();
  if (samples == 1) return y;
  tp.rows(y.size(0));  // throws unless samples and ranks divide them
  return y.view({tp.size(), samples, -1}).transpose(0, 1).contiguous().view(y.shape());
}

Tensor sum_scattered(const TensorParallel& tp, const Tensor& x) {
  Shape share = x.shape();
  share[0] = tp.rows(share[0]);
  Tensor y = tp.comm().empty(share, x.dtype()), all = x.detach().contiguous();
  int64_t samples = tp.samples_apart();
  if (samples > 1) {
    Tensor by_rank = tp.comm().empty({tp.size(), samples, y.numel() / samples}, x.dtype());
    copy_(by_rank, all.view({samples, tp.size(), -1}).transpose(0, 1));
    all = by_rank.view(x.shape());
  }
  tp.comm().reduce_scatter(all, y).wait();
  return y;
}

/// Returns the sum of the ranks' parts: of this rank's rows, or of all.
Tensor over_ranks(const TensorParallel& tp, Tensor parts) {
  if (tp.sequence()) return sum_scattered(tp, parts);
  if (tp.size() == 1) return parts;
  bool own = tp.sliced() && parts.exclusive();  // else summed where the transport needs no copies
  Tensor sums = own ? std::move(parts) : tp.comm().empty(parts.shape(), parts.dtype());
  if (!own) copy_(sums, parts);
  tp.comm().all_reduce(sums).wait();
  return sums;
}

Tensor mine(const TensorParallel& tp, const Tensor& x) {
  Shape share = x.shape();
  share[0] = tp.rows(share[0]);
  Tensor parts = x.detach().contiguous().view({tp.samples_apart(), tp.size(), -1});
  return clone(parts.narrow(1, tp.rank(), 1)).view(share);
}

}  // namespace

TensorParallel TensorParallel::on(std::string_view axis) const {
  auto found = others_.find(axis);
  bool known = found != others_.end();
  check_input(known || size() == 1, Exit::config, "tensor parallel: no axis {} of features", axis);
  TensorParallel other(known ? *found->second : *tp_);  // one rank knows of no axes
  other.axis_ = axis, other.others_ = others_;
  if (size() > 1) other.along_[axis_] = sequence_ ? nn::Along::parts : nn::Along::alike;
  return other;
}

nn::Shard TensorParallel::shard(int dim, int64_t length, int64_t unit) const {
  check(unit >= 1 && length % unit == 0,
        "tensor parallel: {} features in units of {}; expected a multiple", length, unit);
  check_input(!sliced() || slices_.count % size() == 0, Exit::config,
              "tensor parallel: {} slices on tp={}; expected a multiple of tp", slices_.count,
              size());
  check_input(length % slices_.count == 0, Exit::config,
              "tensor parallel: {} slices do not divide {} features\n  Valid --tp-slices for "
              "them: {}.",
              slices_.count, length, divisors(length, size(), Slices::most));
  if (size() == 1) return {.along = along_, .groups = slices_here()};
  int64_t units = length / unit;
  if (units % size() != 0) {
    std::string what =
        unit == 1 ? "features" : fmt::format("units of {} features, such as heads", unit);
    fail(Exit::config, "tensor parallel: tp={} does not divide {} {}\n  Valid tp for them: {}.",
         size(), units, what, divisors(units, 1, units));
  }
  int64_t each = length / size();
  nn::Shard shard{.dim = dim, .begin = rank() * each, .length = each, .along = along_};
  shard.along[axis_] = nn::Along::slice, shard.groups = slices_here();
  return shard;
}

nn::Shard TensorParallel::vocabulary(int64_t rows) const {
  if (undivided()) return {.along = along_};
  int parts = sliced() ? slices_.count : size();
  int64_t each = (rows + parts - 1) / parts * (parts / size());
  int64_t begin = std::min(rows, rank() * each), length = std::min(each, rows - begin);
  nn::Shard shard{.begin = begin, .length = length, .padding = each - length, .along = along_};
  if (size() > 1) shard.along[axis_] = nn::Along::slice;
  shard.groups = slices_here();
  return shard;
}

nn::Shard TensorParallel::whole() const {
  nn::Shard shard = whole_never_summed();
  if (sequence_) shard.along[axis_] = nn::Along::parts, shard.chains = slices_here();
  return shard;
}

nn::Shard TensorParallel::whole_never_summed() const {
  nn::Shard shard{.along = along_, .chains = slices_.count};
  if (size() > 1) shard.along[axis_] = nn::Along::alike;
  return shard;
}

nn::Shard TensorParallel::whole_always_summed() const {
  slices_.refuse("whole_always_summed");
  nn::Shard shard = whole();
  if (size() > 1) shard.along[axis_] = nn::Along::parts;
  return shard;
}

int64_t TensorParallel::rows(int64_t all) const {
  if (!sequence_) return all;
  check_input(all % (size() * samples_apart()) == 0, Exit::config,
              "sequence parallel: {} ranks do not divide {} token rows{}; expected a multiple\n"
              "  Take sequences of a length that tp divides, or leave "
              "--sequence-parallel out.",
              size(), all, samples_apart() == 1 ? "" : " of several samples");
  return all / size();
}

int64_t TensorParallel::first_row(int64_t mine) const {
  check_input(samples_apart() == 1, Exit::config,
              "bitwise with sequence-parallel: a layer that is `independent` asks for its first "
              "row, but has some rows of each of {} samples; expected parallel::Dropout where it "
              "drops out\n  Take --micro-batch 1, or do not mark the layer.",
              samples_apart());
  return sequence_ ? rank() * mine : 0;
}

Tensor TensorParallel::enter(const Tensor& x) const {
  if (undivided()) return x;
  auto rule = [tp = *this, dtype = x.dtype()](Tensor dy, autograd::Into& into) {
    return Tensors{rounded(over_ranks(tp, std::move(dy)), dtype, into)};
  };
  Tensor y =
      record("enter", sequence_ ? gathered(*this, x) : x.detach(), {x}, autograd::Rule(rule));
  if (sliced()) collect_gradient(y, slices_.gradient(y, slices_here()));
  else collect_gradient(y, dtype_of_sums(x.dtype()));
  return y;
}

// A sum is in flight while rules make weights' gradients and the next pieces: the last piece's rule
// hands it on, and `arrive`, recorded before, waits for it.
Tensor TensorParallel::through(const Tensor& x, const Product& product, Cut cut) const {
  if (undivided()) return product(x);
  if (sliced() || samples_apart() > 1) {
    Tensor all = enter(x), y = product(all);
    if (!sequence_) return y;
    return remake(y, all, [tp = *this, mine = x.detach()] { return gathered(tp, mine); });
  }
  Pieces pieces{pieces_.shares};
  if (cut == Cut::pieces) pieces = pieces_.of(x.size(0));
  Tensor mine = x.detach().contiguous();
  auto sum = std::make_shared<Summing>(*tp_, pieces);
  Tensor from = record("arrive", x.detach(), {x},
                       autograd::Rule([sum, dtype = x.dtype()](Tensor dy, autograd::Into& into) {
                         sum->wait();
                         return Tensors{rounded(dy, dtype, into)};
                       }));
  collect_gradient(from, dtype_of_sums(x.dtype()));
  Gathering gathering(*tp_, pieces, mine);
  auto again = std::make_shared<Gathering>(*tp_, pieces, mine);
  Tensors ys;
  for (int64_t c = 0; c < pieces.count; ++c) {
    Tensor all = sequence_ ? gathering.take(c, c + 1) : pieces.take(mine, c);
    all = record("enter", all, {from},
                 [sum, c](const Tensor& dy) { return Tensors{sum->add(dy, c)}; });
    collect_gradient(all, dtype_of_sums(x.dtype()));
    run_early(all);
    Tensor y = product(all);
    ys.push_back(sequence_ ? remake(y, all, [=] { return again->take(c, c - 1); }) : y);
  }
  return pieces.count == 1 ? ys[0] : pieces.join(ys);
}

Tensor TensorParallel::leave(Tensor x) const {
  slices_.refuse("leave");
  DType dtype = x.dtype(), sums = dtype_of_sums(dtype);
  if (size() > 1 && sums != dtype) x = cast(x, sums);
  return leave_parts(std::move(x), {}, dtype);
}

Tensor TensorParallel::leave_one(Tensor x) const {
  DType dtype = x.dtype();
  return leave_parts(std::move(x), {}, dtype);
}

// The first rank's product adds the bias as it writes its part. Parts in another dtype, as those of
// fp16 and of slices, are added and rounded before the bias comes. A residual in a part would make
// each rounding of bf16 on the way as large as the residual's: it is added afterwards.
Tensor TensorParallel::leave_product(const Tensor& x, const Tensor& weight,
                                     const Tensor& bias) const {
  if (undivided()) return linear(x, weight, bias);
  check(!bias.defined() || bias.shape() == Shape{weight.size(0)},
        "leave_product: bias {} for weight {}; expected [{}]", bias, weight.shape(),
        weight.size(0));
  Shape shape{x.size(0), weight.size(0)};
  if (sliced()) {
    Tensor parts = linear_to(slices_.activations(shape, x.device(), slices_here()), x, weight);
    Tensor y = leave_parts(std::move(parts), {}, x.dtype());
    return bias.defined() ? y + bias : y;
  }
  DType sums = dtype_of_sums(x.dtype());
  Tensor inside = rank() == 0 && bias.defined() ? bias.detach() : Tensor();
  auto product = [&](const Tensor& rows) {
    if (sums == x.dtype()) return linear(rows, weight, inside);
    return linear_to({empty({rows.size(0), weight.size(0)}, sums, x.device())}, rows, weight);
  };
  return leave_pieces(x, product, bias);
}

Tensor TensorParallel::leave_parts(Tensor parts, const Tensor& bias, DType dtype) const {
  if (size() == 1 && parts.dtype() == dtype) return parts;
  Tensor y = sequence_           ? sum_scattered(*this, parts)
             : parts.exclusive() ? parts.detach()
                                 : clone(parts.detach());
  if (size() > 1 && !sequence_) tp_->all_reduce(y).wait();
  parts = without_values(parts);
  auto rule = [tp = *this](const Tensor& dy, autograd::Into&) {
    return Tensors{tp.sequence_ ? gathered(tp, dy) : dy};
  };
  return left(with_bias(y, bias, dtype), {parts}, bias, std::move(rule));
}

Tensor TensorParallel::leave_pieces(const Tensor& x, const Product& product,
                                    const Tensor& bias) const {
  Pieces pieces = pieces_.of(rows(x.size(0)));
  if (samples_apart() > 1 || pieces.count == 1) return leave_parts(product(x), bias, x.dtype());
  Summing sum(*tp_, pieces);
  auto gathering = std::make_shared<std::optional<Gathering>>();
  Tensors parts;
  Tensor y;
  auto cut = pieces.cut(x);
  for (int64_t c = 0; c < pieces.count; ++c) {
    Tensor part = product(cut(c));
    y = sum.add(part, c);
    part = without_values(part);
    if (sequence_) {
      part = record("arrive", part, {part}, [gathering, c](const Tensor& dy) {
        (*gathering)->finish(c);
        return Tensors{dy};
      });
      collect_gradient(part, x.dtype());  // what is in flight must not be converted
    }
    parts.push_back(part);
  }
  sum.wait();
  auto rule = [=, tp = *this](const Tensor& dy, autograd::Into&) {
    Tensors pieces_of_dy(size_t(pieces.count));
    if (tp.sequence_) gathering->emplace(*tp.tp_, pieces, dy);
    for (int64_t i = pieces.count - 1; i >= 0; --i)  // in the order in which rules wait for them
      pieces_of_dy[size_t(i)] = tp.sequence_ ? (*gathering)->start(i) : pieces.take(dy, i);
    return pieces_of_dy;
  };
  return left(with_bias(y, bias, x.dtype()), parts, bias, std::move(rule));
}

Tensor TensorParallel::scatter_rows(const Tensor& x) const {
  if (!sequence_) return x;
  return record("scatter_rows", mine(*this, x), {x},
                [tp = *this](const Tensor& dy) { return Tensors{gathered(tp, dy)}; });
}

Tensor TensorParallel::gather_rows(const Tensor& x) const {
  if (!sequence_) return x;
  return record("gather_rows", gathered(*this, x), {x},
                [tp = *this](const Tensor& dy) { return Tensors{mine(tp, dy)}; });
}

Packing TensorParallel::split() const {
  if (size() == 1 || sequence_) return {};
  auto share = [tp = *this](const Tensor& x) {
    int64_t n = x.numel() / tp.size();
    check_input(n * tp.size() == x.numel(), Exit::config,
                "recompute: {} ranks do not divide the {} elements of {}; expected a multiple",
                tp.size(), x.numel(), x);
    return clone(x.contiguous().view({x.numel()}).narrow(0, tp.rank() * n, n));
  };
  auto whole = [tp = *this](const Tensor& packed, const Shape& shape) {
    return joined_columns(tp, packed).view(shape);
  };
  return {share, whole};
}

Tensor join_columns(const TensorParallel& tp, const Tensor& x) {
  if (tp.size() == 1) return x.detach();
  Tensor all = joined_columns(tp, x).view({tp.size(), x.size(0), x.size(1)});
  return all.transpose(0, 1).contiguous().view({x.size(0), tp.size() * x.size(1)});
}

// The largest logit of a row is that of its slices; their sums of exponentials, each relative to
// its own largest, are rescaled to it (Shoeybi et al. 2019, section 3, for the rest).
Tensor TensorParallel::combine(const Tensor& stats) const {
  NoGrad guard;
  int64_t parts = stats.size(0), rows = stats.size(1);
  if (size() * parts == 1) return stats.view({rows, 4});
  Tensor all = stats;
  if (size() > 1) {
    all = tp_->empty({size() * parts, rows, 4}, stats.dtype());
    tp_->all_gather(stats, all).wait();
  }
  Tensor largest = all.narrow(2, 0, 1), exps = all.narrow(2, 1, 1);
  Tensor top = max(largest, {0}, Keep::yes);  // [1, rows, 1]
  Tensor sums = sum(concat({exps * exp(largest - top), all.narrow(2, 2, 2)}, 2), {0});
  return concat({top.view({rows, 1}), sums}, 1);
}

}  // namespace triax::parallel
