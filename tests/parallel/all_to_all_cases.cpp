#include "tests/parallel/collective_cases.h"
#include "triax/core/check.h"

namespace triax::parallel::cases {

void all_to_all(Communicator& c) {
  for_all([&](DType t, int64_t n) {
    Tensor mine = filled(c, c.size() * n, t, [&](int64_t i) { return value(c.rank(), i); });
    Tensor own = c.empty({c.size() * n}, t);
    copy_(own, mine);
    // Half of the ranks bring memory of the communicator, then all do.
    for (const Tensor& from : {c.rank() % 2 ? own : mine, own}) {
      Tensor all = c.empty({c.size() * n}, t);
      fill_(all, 99);
      c.all_to_all(from, all).wait();
      expect("all_to_all", all, [&](int64_t i) { return value(int(i / n), c.rank() * n + i % n); });
    }
  });
}

namespace {

/// Rows that rank `from` sends to rank `to`: none here and there, many once. Rank 2 has no part.
int64_t rows(int from, int to) {
  if (from == 2 || to == 2) return 0;
  if (from == 0 && to == 1) return 20'000;
  return (from + 2 * to) % 3;
}

}  // namespace

void all_to_all_with_counts(Communicator& c) {
  constexpr int64_t width = 3;
  for (DType t : {f32, bf16, u8, i64})
    for (bool own_memory : {false, true}) {
      std::vector<int64_t> table;  // [sender][receiver]
      std::vector<double> right;
      int64_t out = 0, in = 0;
      for (int r = 0; r < c.size(); ++r) {
        int64_t before = 0;  // of what r sends, to ranks before this one
        for (int d = 0; d < c.rank(); ++d) before += rows(r, d) * width;
        for (int d = 0; d < c.size(); ++d) table.push_back(rows(r, d));
        out += rows(c.rank(), r), in += rows(r, c.rank());
        for (int64_t i = 0; i < rows(r, c.rank()) * width; ++i)
          right.push_back(value(r, before + i));
      }
      auto place = [&](const Tensor& x) {
        Tensor y = own_memory ? c.empty(x.shape(), t) : zeros(x.shape(), t, c.device());
        copy_(y, x);
        return y;
      };
      auto mine = [&](int64_t i) { return value(c.rank(), i); };
      Tensor x = place(filled(c, out * width, t, mine).view({out, width}));
      Tensor y = place(full({in, width}, 99, t, c.device()));
      c.reset_ledger();
      c.all_to_all(x, y, table).wait();
      expect("all_to_all with counts", y, [&](int64_t i) { return right[size_t(i)]; });
      double bytes = double((out - rows(c.rank(), c.rank())) * width) * double(size_of(t));
      check(c.ledger().total().bytes == bytes, "ledger: {} bytes of an all_to_all; expected {}",
            c.ledger().total().bytes, bytes);
    }
}

}  // namespace triax::parallel::cases
