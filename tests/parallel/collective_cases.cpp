#include "tests/parallel/collective_cases.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "triax/core/check.h"

namespace triax::parallel::cases {
namespace {

constexpr DType dtypes[] = {f32, f64, f16, bf16, i32, i64, u8};
constexpr int64_t sizes[] = {0, 1, 3, 64, 1000, 40'009};  // the last for one dtype only

Communicator::Seat together(int rank) { return {0, rank}; }

double combined(ReduceOp op, int ranks, int64_t i, int salt = 0) {
  double y = value(0, i, salt);
  for (int r = 1; r < ranks; ++r) {
    double v = value(r, i, salt);
    y = op == ReduceOp::sum ? y + v : op == ReduceOp::max ? std::max(y, v) : std::min(y, v);
  }
  return y;
}

void all_reduce(Communicator& c) {
  for (ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min})
    for_all([&](DType t, int64_t n) {
      Tensor x = filled(c, n, t, [&](int64_t i) { return value(c.rank(), i); });
      c.all_reduce(x, op).wait();
      expect("all_reduce", x, [&](int64_t i) { return combined(op, c.size(), i); });
    });
}

void all_reduce_in_own_memory(Communicator& c) {
  for_all([&](DType t, int64_t n) {
    Tensor x = c.empty({n}, t);
    copy_(x, filled(c, n, t, [&](int64_t i) { return value(c.rank(), i); }));
    c.all_reduce(x).wait();
    expect("all_reduce", x, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i); });
  });
}

/// Half of the ranks bring memory of the communicator, half bring their own.
void all_reduce_mixed_memory(Communicator& c) {
  for (int64_t n : sizes) {
    Tensor mine = filled(c, n, f32, [&](int64_t i) { return value(c.rank(), i); });
    Tensor x = c.rank() % 2 ? c.empty({n}, f32) : mine;
    if (c.rank() % 2) copy_(x, mine);
    c.all_reduce(x).wait();
    expect("all_reduce", x, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i); });
  }
}

void all_gather(Communicator& c) {
  for_all([&](DType t, int64_t n) {
    auto right = [&](int64_t i) { return value(int(i / n), i % n); };
    Tensor mine = filled(c, n, t, [&](int64_t i) { return value(c.rank(), i); });
    Tensor all = c.empty({c.size() * n}, t);
    fill_(all, 99);
    c.all_gather(mine, all).wait();
    expect("all_gather", all, right);
    fill_(all, 99);
    Tensor slice = all.narrow(0, c.rank() * n, n);
    copy_(slice, mine);
    c.all_gather(slice, all).wait();
    expect("all_gather in place", all, right);
  });
}

void reduce_scatter(Communicator& c) {
  for_all([&](DType t, int64_t n) {
    auto right = [&](int64_t i) { return combined(ReduceOp::sum, c.size(), c.rank() * n + i); };
    Tensor all = filled(c, c.size() * n, t, [&](int64_t i) { return value(c.rank(), i); });
    Tensor mine = zeros({n}, t, c.device());
    c.reduce_scatter(all, mine).wait();
    expect("reduce_scatter", mine, right);
    expect("reduce_scatter's input", all, [&](int64_t i) { return value(c.rank(), i); });
    Tensor slice = all.narrow(0, c.rank() * n, n);
    c.reduce_scatter(all, slice).wait();
    expect("reduce_scatter in place", slice, right);
  });
}

void rooted(Communicator& c) {
  for (int root = 0; root < c.size(); ++root)
    for_all([&](DType t, int64_t n) {
      bool here = c.rank() == root;
      auto make = [&](int64_t count) {
        return filled(c, count, t, [&](int64_t i) { return value(c.rank(), i); });
      };
      Tensor x = make(n);
      c.broadcast(x, root).wait();
      expect("broadcast", x, [&](int64_t i) { return value(root, i); });
      Tensor y = make(n);
      c.reduce(y, root).wait();
      expect("reduce", y, [&](int64_t i) {
        return here ? combined(ReduceOp::sum, c.size(), i) : value(c.rank(), i);
      });
      Tensor all = here ? zeros({n * c.size()}, t, c.device()) : Tensor();
      c.gather(make(n), all, root).wait();
      if (here) expect("gather", all, [&](int64_t i) { return value(int(i / n), i % n); });
      Tensor mine = zeros({n}, t, c.device());
      c.scatter(here ? make(n * c.size()) : Tensor(), mine, root).wait();
      expect("scatter", mine, [&](int64_t i) { return value(root, c.rank() * n + i); });
    });
}

/// Sums of halves are made in f32 in rank order and rounded once; sums of f32 in rank order. Large
/// ones between hosts (of two ranks, tests/parallel/CMakeLists.txt) on each host first, likewise.
void rank_order(Communicator& c) {
  auto term = [](int rank, int64_t i) { return float(std::sin(double(rank * 1000 + i))) * 1.7f; };
  for (int64_t n : {int64_t{1}, int64_t{1000}, int64_t{50'001}})
    for (DType t : {f32, f16, bf16}) {
      auto rounded = [&](int r) {
        return filled(c, n, f32, [&](int64_t i) { return term(r, i); })
            .to(t)
            .to(f32)
            .to_host<float>();
      };
      std::string_view over = c.transport();
      bool levels = (over == "shared memory and MPI" || over == "MPI in two levels") &&
                    size_t(n) * size_of(t) >= 1 << 16;
      int each = levels ? 2 : c.size();
      auto sum_of = [&](int first) {
        std::vector<float> sum = rounded(first);
        for (int r = first + 1; r < first + each; ++r) {
          auto v = rounded(r);
          for (size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
        }
        return from_host(sum, {n}, cpu).to(t).to(f32).to_host<float>();
      };
      std::vector<float> sum = sum_of(0);
      for (int first = each; first < c.size(); first += each) {
        auto v = sum_of(first);
        for (size_t i = 0; i < v.size(); ++i) sum[i] += v[i];
      }
      Tensor x = filled(c, n, f32, [&](int64_t i) { return term(c.rank(), i); }).to(t);
      c.all_reduce(x).wait();
      auto want = from_host(sum, {n}, cpu).to(t).to(f32).to_host<float>();
      auto got = x.to(f32).to_host<float>();
      check(n == 0 || !std::memcmp(got.data(), want.data(), want.size() * sizeof(float)),
            "all_reduce of {} is not the sum in rank order", x);
    }
}

/// As value() and sums of it, which repeat every 13 elements: quick to make.
std::vector<float> repeated(int64_t n, const std::function<double(int64_t)>& f) {
  std::vector<float> v(static_cast<size_t>(n));
  for (size_t i = 0; i < v.size(); ++i) v[i] = i < 13 ? float(f(int64_t(i))) : v[i - 13];
  return v;
}

/// Several of the chunks of 4 MiB in which processes send, and a bit.
void several_chunks(Communicator& c) {
  constexpr int64_t million = 1 << 20, n = 3 * million + 1, slice = million + 1;
  auto first = [&](int64_t i) { return value(c.rank(), i); };
  auto right = [](const char* what, const Tensor& x, const std::function<double(int64_t)>& f) {
    check(x.to(cpu).to_host<float>() == repeated(x.numel(), f), "{}: wrong sums or slices", what);
  };
  for (bool own_memory : {true, false}) {
    auto make = [&](int64_t count) {
      Tensor values = from_host(repeated(count, first), {count}, cpu).to(c.device());
      if (own_memory) return values;
      Tensor x = c.empty({count}, f32);
      copy_(x, values);
      return x;
    };
    Tensor x = make(n), all = make(c.size() * slice), mine = make(slice);
    c.all_reduce(x).wait();
    right("all_reduce", x, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i); });
    c.reduce_scatter(all, mine).wait();
    right("reduce_scatter", mine,
          [&](int64_t i) { return combined(ReduceOp::sum, c.size(), c.rank() * slice + i); });
    c.all_gather(make(slice), all).wait();
    for (int r = 0; r < c.size(); ++r)
      right("all_gather", all.narrow(0, r * slice, slice), [&](int64_t i) { return value(r, i); });
  }
}

void nan_wins(Communicator& c) {
  Tensor x = filled(c, 5, f32, [&](int64_t i) {
    return i == 2 && c.rank() == c.size() - 1 ? std::numeric_limits<double>::quiet_NaN() : 1;
  });
  for (ReduceOp op : {ReduceOp::max, ReduceOp::min, ReduceOp::sum}) {
    Tensor y = clone(x);
    c.all_reduce(y, op).wait();
    check(std::isnan(y.to_host<float>()[2]), "{}: a NaN of the last rank was lost", name(op));
  }
}

/// More in flight than any transport has room for, waited for from the last to the first.
void many_out_of_order(Communicator& c) {
  std::vector<Tensor> xs;
  std::vector<Work> works;
  for (int k = 0; k < 60; ++k) {
    int64_t n = k % 3 == 0 ? 40'000 : 10 + k;
    xs.push_back(k % 2 ? c.empty({n}, f32) : zeros({n}, f32, c.device()));
    copy_(xs.back(), filled(c, n, f32, [&](int64_t i) { return value(c.rank(), i, k); }));
    works.push_back(c.all_reduce(xs.back()));
  }
  for (int k = 59; k >= 0; --k) {
    works[size_t(k)].wait();
    expect("all_reduce", xs[size_t(k)],
           [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i, k); });
  }
}

/// Other ranks wait in another order, on two communicators: every wait advances everything.
void two_communicators(Communicator& c) {
  auto other = c.split(together, "other");
  for (int k = 0; k < 5; ++k) {
    Tensor x = filled(c, 30'000, f32, [&](int64_t i) { return value(c.rank(), i, k); });
    Tensor y = filled(c, 70'000, f32, [&](int64_t i) { return value(c.rank(), i, k + 1); });
    Work a = c.all_reduce(x), b = other->all_reduce(y);
    if (c.rank() % 2) a.wait(), b.wait();
    else b.wait(), a.wait();
    expect("first", x, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i, k); });
    expect("second", y, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i, k + 1); });
  }
}

void splits(Communicator& c) {
  auto half = c.split([](int r) { return Communicator::Seat{r % 2, -r}; }, "half");
  int members = (c.size() + 1 - c.rank() % 2) / 2;
  check(half->size() == members, "split: {} ranks; expected {}", half->size(), members);
  check(half->rank() == members - 1 - c.rank() / 2, "split: rank {}, ordered by key", half->rank());
  for (int r = 0; r < half->size(); ++r)
    check(half->group().members[size_t(half->size() - 1 - r)] == 2 * r + c.rank() % 2,
          "split: members of {}", half->group().str());
  Tensor x = filled(c, 100, i64, [&](int64_t i) { return i + c.rank(); });
  half->all_reduce(x).wait();
  expect("all_reduce in a half", x, [&](int64_t i) {
    double sum = 0;
    for (int r = c.rank() % 2; r < c.size(); r += 2) sum += double(i + r);
    return sum;
  });
  auto alone = half->split([](int r) { return Communicator::Seat{r, 0}; }, "alone");
  check(alone->size() == 1, "split: {} ranks; expected 1", alone->size());
  Tensor y = full({3}, 5, f32, c.device()), z = zeros({3}, f32, c.device());
  alone->all_gather(y, z).wait();
  expect("all_gather alone", z, [](int64_t) { return 5.; });
  alone->barrier();
  for (int k = 0; k < 10; ++k) c.split(together, "again")->barrier();
}

void point_to_point(Communicator& c) {
  if (c.size() == 1) return;
  int next = (c.rank() + 1) % c.size(), last = (c.rank() + c.size() - 1) % c.size();
  // Rendezvous sends: in a ring somebody has to begin with receiving.
  for_all([&](DType t, int64_t n) {
    Tensor out = filled(c, n, t, [&](int64_t i) { return value(c.rank(), i); });
    Tensor in = zeros({n}, t, c.device());
    if (c.rank() == 0) {
      c.recv(in, last).wait();
      c.send(out, next).wait();
    } else {
      c.send(out, next).wait();
      c.recv(in, last).wait();
    }
    expect("recv", in, [&](int64_t i) { return value(last, i); });
  });
  // Messages between two ranks keep their order.
  if (c.rank() > 1) return;
  std::vector<Tensor> xs;
  std::vector<Work> works;
  for (int k = 0; k < 20; ++k) {
    xs.push_back(c.rank() ? zeros({100 + k}, i32, c.device())
                          : full({100 + k}, k, i32, c.device()));
    works.push_back(c.rank() ? c.recv(xs.back(), 0) : c.send(xs.back(), 1));
  }
  for (int k = 19; k >= 0; --k) {
    works[size_t(k)].wait();
    expect("ordered", xs[size_t(k)], [&](int64_t) { return double(k); });
  }
}

void repeatable(Communicator& c) {
  std::vector<float> first;
  for (int k = 0; k < 3; ++k) {
    Tensor x =
        filled(c, 200'001, f32, [&](int64_t i) { return std::sin(double(i) * (c.rank() + 1)); });
    c.all_reduce(x).wait();
    auto v = x.to_host<float>();
    if (k == 0) first = v;
    check(!std::memcmp(v.data(), first.data(), v.size() * 4), "all_reduce {} has other bits", k);
  }
}

void done_and_poll(Communicator& c) {
  Tensor x = filled(c, 300'000, f32, [&](int64_t i) { return value(c.rank(), i); });
  Work w = c.all_reduce(x);
  while (!w.done()) poll();
  check(w.done(), "done: false after true");
  w.wait();
  expect("all_reduce", x, [&](int64_t i) { return combined(ReduceOp::sum, c.size(), i); });
  {
    Tensor y = full({1000}, 1, f32, c.device());
    { Work unnamed = c.all_reduce(y); }  // waits when destroyed
    expect("after the destructor", y, [&](int64_t) { return double(c.size()); });
  }
}

void ledger(Communicator& c) {
  c.reset_ledger();
  double n = c.size();
  Tensor x = zeros({int64_t(6 * n)}, f32, c.device()), mine = zeros({6}, f32, c.device());
  c.all_reduce(x).wait();
  c.all_gather(mine, x).wait();
  c.reduce_scatter(x, mine).wait();
  c.reduce_scatter(x, mine).wait();
  c.all_to_all(x, zeros_like(x)).wait();
  const Ledger& l = c.ledger();
  double bytes = 24 * n;
  check(l[Call::all_reduce].bytes == 2 * bytes * (n - 1) / n, "ledger: all_reduce");
  check(l[Call::all_gather].bytes == bytes * (n - 1) / n, "ledger: all_gather");
  check(l[Call::reduce_scatter].bytes == 2 * bytes * (n - 1) / n, "ledger: reduce_scatter");
  check(l[Call::reduce_scatter].calls == 2 && l.total().calls == 5, "ledger: calls");
  check(l[Call::all_to_all].bytes == bytes * (n - 1) / n, "ledger: all_to_all");
}

}  // namespace

double value(int rank, int64_t i, int salt) { return double((rank * 7 + i * 3 + salt) % 13); }

Tensor filled(const Communicator& c, int64_t n, DType dtype,
              const std::function<double(int64_t)>& f) {
  std::vector<double> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) v[size_t(i)] = f(i);
  return from_host(v, {n}, cpu).to(dtype).to(c.device());
}

void expect(const char* what, const Tensor& x, const std::function<double(int64_t)>& f) {
  auto got = x.to(cpu).to(f64).to_host<double>();
  for (size_t i = 0; i < got.size(); ++i)
    check(got[i] == f(int64_t(i)), "{}: element {} of {} is {}; expected {}", what, i, x, got[i],
          f(int64_t(i)));
}

void for_all(const std::function<void(DType, int64_t)>& f) {
  for (DType t : dtypes)
    for (int64_t n : sizes)
      if (n <= 1000 || t == f32) f(t, n);
}

const std::vector<CollectiveCase>& collective_cases() {
  static const std::vector<CollectiveCase> cases{
      {"all_reduce", all_reduce},
      {"all_reduce_in_own_memory", all_reduce_in_own_memory},
      {"all_reduce_mixed_memory", all_reduce_mixed_memory},
      {"all_gather", all_gather},
      {"reduce_scatter", reduce_scatter},
      {"rooted", rooted},
      {"all_to_all", all_to_all},
      {"all_to_all_with_counts", all_to_all_with_counts},
      {"rank_order", rank_order},
      {"several_chunks", several_chunks},
      {"nan_wins", nan_wins},
      {"many_out_of_order", many_out_of_order},
      {"two_communicators", two_communicators},
      {"splits", splits},
      {"point_to_point", point_to_point},
      {"repeatable", repeatable},
      {"done_and_poll", done_and_poll},
      {"ledger", ledger},
  };
  return cases;
}

}  // namespace triax::parallel::cases
