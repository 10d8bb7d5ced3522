#include "triax/autograd/ops/common.h"

namespace triax {

using autograd::Into;

void autograd::check_range(const char* op, const Tensor& index, int64_t limit,
                           std::optional<int64_t> ignored) {
  if (index.device() == meta_device) return;
  Tensor all = index.to(cpu).contiguous();
  auto or_ignored = [&] {
    return ignored ? fmt::format(", or {} for what counts nothing", *ignored) : std::string();
  };
  visit_index(all.dtype(), [&]<class I>() {
    const I* values = all.data<I>();
    for (int64_t i = 0; i < all.numel(); ++i)
      if (!(values[i] >= 0 && values[i] < limit) && values[i] != ignored)
        fail(Exit::data, "{}: value {} at position {}; expected 0 to {}{}", op, values[i], i,
             limit - 1, or_ignored());
  });
}

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  autograd::check_float("where", a);
  autograd::check_same("where", a, b);
  check(mask.defined() && mask.dtype() == u8 && mask.device() == a.device(),
        "where: mask {}; expected u8 on {}", mask, a.device());
  Shape s = broadcast("where", mask.shape(), broadcast("where", a.shape(), b.shape()));
  Tensor y = empty(s, a.dtype(), a.device()), m = mask.detach().expand(s);
  backend(a).where(m, a.detach().expand(s), b.detach().expand(s), y);
  y = record("where", y, {a, b}, [m, sa = a.shape(), sb = b.shape()](const Tensor& dy, Into& into) {
    Tensors d(2);
    Tensor none = zeros({}, dy.dtype(), dy.device()).expand(dy.shape());
    for (size_t i : {0, 1}) {
      if (!into.wanted(i)) continue;
      Tensor part = empty_like(dy);
      backend(dy).where(m, i == 0 ? dy : none, i == 0 ? none : dy, part);
      d[i] = autograd::sum_to(part, i == 0 ? sa : sb, into, i);
    }
    return d;
  });
  note_kept(y, {mask});
  return y;
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  autograd::check_float("masked_fill", x);
  check(mask.defined() && broadcast("masked_fill", x.shape(), mask.shape()) == x.shape(),
        "masked_fill: mask {} for {}; expected a shape that broadcasts to it", mask, x);
  return where(mask, full({}, value, x.dtype(), x.device()), x);
}

Tensor dropout(const Tensor& x, const random::Mask& mask) {
  check(mask.p >= 0 && mask.p < 1, "dropout: p {}; expected 0 <= p < 1", mask.p);
  if (mask.p == 0) return x;
  autograd::check_float("dropout", x);
  check(x.rank() == 2, "dropout: {}; expected [rows, width]", x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  backend(x).dropout(x.detach().contiguous(), mask, y);
  return record("dropout", y, {x}, [mask](const Tensor& dy) {
    Tensor dx = empty_like(dy);
    backend(dy).dropout(dy, mask, dx);
    return Tensors{dx};
  });
}

namespace {

/// Returns an index of values below `limit` where x is. Nothing waits for one that is on the host.
Tensor index_at(const char* op, const Tensor& x, const Tensor& index, int64_t limit) {
  if (!index.defined() || index.device() != cpu) autograd::check_index(op, x, index);
  check(is_index(index.dtype()), "{}: index {}; expected i32 or i64", op, index);
  autograd::check_range(op, index, limit);
  return index.to(x.device()).contiguous();
}

}  // namespace

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  autograd::check_float("index_select", x);
  dim = x.shape().index(dim);
  Tensor at = index_at("index_select", x, index, x.size(dim));
  check(index.rank() == 1, "index_select: index {}; expected one dim", index);
  Shape s = x.shape();
  s[dim] = index.numel();
  Tensor y = empty(s, x.dtype(), x.device());
  backend(x).index_select(x.detach().contiguous(), dim, at, y);
  y = record("index_select", y, {x}, [dim, at, s = x.shape()](const Tensor& dy) {
    Tensor dx = zeros(s, dy.dtype(), dy.device());
    backend(dy).index_add(dy, dim, at, dx);
    return Tensors{dx};
  });
  note_kept(y, {at});
  return y;
}

Tensor gather(const Tensor& x, const Tensor& index) {
  autograd::check_float("gather", x);
  Shape s = index.shape(), head = x.shape();
  check(x.rank() >= 1 && s.rank() == x.rank(), "gather: index {} for {}; expected one rank", index,
        x);
  head[-1] = s[-1];
  check(head == s, "gather: index {} for {}; sizes may differ in the last dim only", index, x);
  Tensor at = autograd::rows_of(index_at("gather", x, index, x.size(-1)));
  Tensor y = empty(s, x.dtype(), x.device());
  backend(x).gather(autograd::rows_of(x), at, autograd::rows_of(y));
  y = record("gather", y, {x}, [at, sx = x.shape()](const Tensor& dy) {
    Tensor dx = zeros(sx, dy.dtype(), dy.device());
    backend(dy).scatter_add(autograd::rows_of(dy), at, autograd::rows_of(dx));
    return Tensors{dx};
  });
  note_kept(y, {at});
  return y;
}

Tensor embedding(const Tensor& ids, const Tensor& table, const VocabularySlice& slice) {
  autograd::check_float("embedding", table);
  autograd::check_index("embedding", table, ids);
  check(table.rank() == 2, "embedding: table {}; expected [vocabulary, width]", table);
  if (ids.device() == cpu)
    autograd::check_range("embedding", ids, slice.all < 0 ? table.size(0) : slice.all);
  Tensor at = ids.contiguous(), t = table.detach().contiguous();
  Tensor y = empty({ids.numel(), table.size(1)}, table.dtype(), table.device());
  backend(t).embedding(at, t, slice.first, y);
  auto table_rule = [ids = at.view({at.numel()}), first = slice.first, s = table.shape(),
                     sums = accumulator(t.dtype())](const Tensor& dy, Into& into) {
    Sums dtable = into.sums(0, s, sums, dy.device());
    embedding_backward(ids, dy, first, dtable);
    return Tensors{dtable.to};
  };
  y = record(
      "embedding", y, {}, [](const Tensor&, Into&) { return Tensors{}; }, {table}, table_rule);
  note_kept(y, {ids});
  return y;
}

}  // namespace triax
