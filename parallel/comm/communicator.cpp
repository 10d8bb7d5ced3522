#include "triax/parallel/comm/communicator.h"

#include <algorithm>

#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/noted_storages.h"
#include "triax/core/profile.h"

namespace triax::parallel {
namespace {

void check_tensor(Call::Kind kind, const char* which, const Tensor& x) {
  check(x.defined() && x.is_contiguous(), "{}: {} is {}; expected a contiguous tensor", name(kind),
        which, x.defined() ? "not contiguous" : "undefined");
}

void check_alike(Call::Kind kind, const Tensor& all, const Tensor& mine) {
  check_tensor(kind, "all", all);
  check(all.dtype() == mine.dtype() && all.device() == mine.device(),
        "{}: all is {}, mine is {}; expected one dtype and device", name(kind), all, mine);
}

void check_slices(Call::Kind kind, const Tensor& all, const Tensor& mine, int size) {
  check_alike(kind, all, mine);
  check(all.numel() == size * mine.numel(),
        "{}: all has {} elements, mine {}; expected all = {} ranks x mine", name(kind), all.numel(),
        mine.numel(), size);
}

void check_exchange(const Tensor& all, const Tensor& mine) {
  check_alike(Call::all_to_all, all, mine);
  auto end = [](const Tensor& x) { return static_cast<std::byte*>(x.data()) + x.bytes(); };
  check(mine.storage() != all.storage() || end(mine) <= all.data() || end(all) <= mine.data(),
        "all_to_all: mine and all share memory; expected tensors that do not overlap");
}

/// Returns the elements of a row of `x`, which has as many rows as `counts` add up to.
int64_t row_elements(const char* which, const Tensor& x, const std::vector<int64_t>& counts,
                     int size) {
  int64_t rows = 0;
  for (int64_t count : counts) {
    check(count >= 0, "all_to_all: {} rows of {}; expected at least 0", count, which);
    rows += count;
  }
  check(int(counts.size()) == size && x.rank() > 0 && x.size(0) == rows,
        "all_to_all: {} counts with a sum of {} for {} = {}; expected {}, with a sum of its rows",
        counts.size(), rows, which, x, size);
  int64_t elements = 1;
  for (int dim = 1; dim < x.rank(); ++dim) elements *= x.size(dim);
  return elements;
}

/// Returns the call with its tensor's dtype and size; messages call the tensor `which`.
Call call_on(const char* which, const Tensor& x, Call call) {
  check_tensor(call.kind, which, x);
  call.dtype = x.dtype();
  call.numel = x.numel();
  return call;
}

/// Wraps an operation and reports when it is waited for and done.
class ProfiledOperation final : public Operation {
 public:
  ProfiledOperation(std::shared_ptr<Operation> operation, std::string name,
                    std::function<void()> finished)
      : operation_(std::move(operation)), waits_("wait " + name), finished_(std::move(finished)) {}

  bool advance() override {
    bool done = operation_->advance();
    if (done) finished_();
    return done;
  }
  void wait() override {
    {
      ProfileRange range(waits_.c_str(), Activity::waiting);
      operation_->wait();
    }
    finished_();
  }
  void abandon(std::exception_ptr error) noexcept override {
    operation_->abandon(std::move(error));
  }

 private:
  std::shared_ptr<Operation> operation_;
  std::string waits_;
  std::function<void()> finished_;
};

int64_t bytes_of(const Tensor& x) { return x.defined() ? int64_t(x.bytes()) : 0; }

/// Starts an operation of a rank that has a profile: the call is a slice there, and so is each wait
/// for its end; from start to end it is one of Profile::operations().
Work profiled(const Group& group, Transfer t, const std::function<Work(Transfer t)>& start) {
  std::string kind(name(t.call.kind));
  ProfileRange range(kind.c_str(), Activity::communication);
  Profile::Operation made{.name = kind + " " + group.name,
                          .call = describe(t.call),
                          .group = group.str(),
                          .bytes = std::max(bytes_of(t.from), bytes_of(t.to))};
  std::string full = made.name;
  Profile* p = profile();
  auto finished = [p, number = p->start(std::move(made))] {
    if (profile() == p) p->finish(number);  // else nobody records any more
  };
  auto operation = start(std::move(t)).release();
  if (operation)
    return Work(std::make_shared<ProfiledOperation>(std::move(operation), full, finished));
  finished();
  return {};
}

}  // namespace

void Communicator::check_usable() const {
  if (fault_->error) std::rethrow_exception(fault_->error);
}

Work Communicator::begin(Transfer t, double bytes) {
  check_usable();
  int root = t.call.peer;
  bool rooted = t.call.kind >= Call::broadcast && t.call.kind <= Call::scatter;
  if (root < (rooted ? 0 : -1) || root >= size())  // the text is long to make
    fail(Exit::internal, "{}: rank {} of {}; expected 0 to {}", name(t.call.kind), root,
         group_.str(), size() - 1);
  ledger_.add(t.call.kind, bytes);
  for (Tensor* x : {&t.from, &t.to}) {
    if (!x->defined()) continue;
    if (x->meta() && !x->is_leaf())
      fail(Exit::internal,
           "{}: {}, which has a gradient history that would not see it; expected detach(), or a "
           "function with record() as in parallel/tensor",
           name(t.call.kind), *x);
    *x = x->detach();
  }
  // ZeRO-3 gathers weights that layers keep again in backward, with the same values: no write.
  if (t.to.defined() && t.call.kind != Call::all_gather) t.to.storage()->note_write();
  if (size() == 1) return copy_alone(t);
  if (!profile()) return start(std::move(t));
  return profiled(group_, std::move(t), [&](Transfer now) { return start(std::move(now)); });
}

Work Communicator::copy_alone(const Transfer& t) const {
  bool moves = t.from.defined() && t.to.defined() && t.from.numel() > 0;
  if (moves && t.from.data() != t.to.data())  // begin() has noted the write
    backend(t.to).copy(t.from.view({-1}), t.to.view({-1}));
  return {};
}

Work Communicator::all_reduce(const Tensor& x, ReduceOp op, Place place) {
  Call call = call_on("x", x, {.kind = Call::all_reduce, .op = op, .place = place});
  return begin({call, x, x}, 2. * double(x.bytes()) * (size() - 1) / size());
}

Work Communicator::all_gather(const Tensor& mine, const Tensor& all, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::all_gather, .place = place});
  check_slices(call.kind, all, mine, size());
  return begin({call, mine, all}, double(mine.bytes()) * (size() - 1));
}

Work Communicator::reduce_scatter(const Tensor& all, const Tensor& mine, ReduceOp op, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::reduce_scatter, .op = op, .place = place});
  check_slices(call.kind, all, mine, size());
  return begin({call, all, mine}, double(mine.bytes()) * (size() - 1));
}

Work Communicator::broadcast(const Tensor& x, int root, Place place) {
  Call call = call_on("x", x, {.kind = Call::broadcast, .peer = root, .place = place});
  bool mine = rank() == root;
  return begin({call, mine ? x : Tensor(), mine ? Tensor() : x},
               double(x.bytes()) * (size() - 1) / size());
}

Work Communicator::reduce(const Tensor& x, int root, ReduceOp op, Place place) {
  Call call = call_on("x", x, {.kind = Call::reduce, .op = op, .peer = root, .place = place});
  return begin({call, x, rank() == root ? x : Tensor()}, double(x.bytes()) * (size() - 1) / size());
}

Work Communicator::gather(const Tensor& mine, const Tensor& all, int root, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::gather, .peer = root, .place = place});
  bool here = rank() == root;
  if (here) check_slices(call.kind, all, mine, size());
  return begin({call, mine, here ? all : Tensor()}, here ? 0 : double(mine.bytes()));
}

Work Communicator::scatter(const Tensor& all, const Tensor& mine, int root, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::scatter, .peer = root, .place = place});
  bool here = rank() == root;
  if (here) check_slices(call.kind, all, mine, size());
  return begin({call, here ? all : Tensor(), mine}, here ? double(mine.bytes()) * (size() - 1) : 0);
}

Work Communicator::all_to_all(const Tensor& mine, const Tensor& all, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::all_to_all, .place = place});
  check_exchange(all, mine);
  check(all.numel() == mine.numel() && mine.numel() % size() == 0,
        "all_to_all: mine has {} elements, all {}; expected the same number, in {} equal slices",
        mine.numel(), all.numel(), size());
  call.numel /= size();
  return begin({call, mine, all}, double(mine.bytes()) * (size() - 1) / size());
}

Work Communicator::all_to_all(const Tensor& mine, const Tensor& all,
                              const std::vector<int64_t>& rows, Place place) {
  Call call = call_on("mine", mine, {.kind = Call::all_to_all, .place = place});
  check_exchange(all, mine);
  auto n = size_t(size()), me = size_t(rank());
  check(rows.size() == n * n, "all_to_all: a table of {} counts for {} ranks; expected {}",
        rows.size(), n, n * n);
  std::vector<int64_t> to(rows.begin() + std::ptrdiff_t(me * n),
                          rows.begin() + std::ptrdiff_t((me + 1) * n));
  std::vector<int64_t> from(n);
  for (size_t s = 0; s < n; ++s) from[s] = rows[s * n + me];
  int64_t width = row_elements("mine", mine, to, size());
  int64_t other = row_elements("all", all, from, size());
  check(width == other, "all_to_all: rows of {} elements in mine, of {} in all; expected the same",
        width, other);
  size_t row = size_t(width) * size_of(call.dtype), largest = 0;
  auto slices = std::make_shared<std::vector<Slice>>(n * n);
  std::vector<size_t> received(n);
  for (size_t s = 0; s < n; ++s)
    for (size_t d = 0, sent = 0; d < n; ++d) {
      size_t bytes = size_t(rows[s * n + d]) * row;
      (*slices)[s * n + d] = {.bytes = bytes, .from = sent, .to = received[d]};
      sent += bytes;
      received[d] += bytes;
      largest = std::max(largest, bytes);
    }
  call.slices = std::move(slices);
  call.table = crc32c(rows.data(), rows.size() * sizeof rows[0]);
  call.numel = int64_t(largest / size_of(call.dtype));
  return begin({call, mine, all}, double(mine.bytes() - size_t(to[me]) * row));
}

Work Communicator::send(const Tensor& x, int to, Place place) {
  Call call = call_on("x", x, {.kind = Call::send, .peer = to, .place = place});
  check(to >= 0 && to != rank(), "send: to rank {} from {}; expected another rank", to, rank());
  return begin({call, x, {}}, double(x.bytes()));
}

Work Communicator::recv(const Tensor& x, int from, Place place) {
  Call call = call_on("x", x, {.kind = Call::recv, .peer = from, .place = place});
  check(from >= 0 && from != rank(), "recv: from rank {} at {}; expected another rank", from,
        rank());
  return begin({call, {}, x}, 0);
}

void Communicator::barrier(Place place) {
  begin({{.kind = Call::barrier, .place = place}, {}, {}}, 0).wait();
}

std::unique_ptr<Communicator> Communicator::split(const std::function<Seat(int)>& seat_of,
                                                  std::string name, Traffic traffic, Place place) {
  std::vector<int64_t> expected;
  for (int r = 0; r < size(); ++r) {
    auto [color, key] = seat_of(r);
    check(color >= 0, "split: color {} of rank {}; expected at least 0", color, r);
    expected.insert(expected.end(), {color, key});
  }
  const int64_t* own = &expected[size_t(2 * rank())];
  // No rank needs these, but one that has others would end up in another group.
  Tensor mine = from_host(std::vector<int64_t>{own[0], own[1]}, {2}, cpu);
  Tensor all = from_host(expected, {size(), 2}, cpu);
  begin({{.kind = Call::split, .dtype = DType::i64, .numel = 2, .place = place}, mine, all}, 0)
      .wait();
  auto told = all.to_host<int64_t>();

  std::vector<std::pair<int64_t, int>> chosen;  // key, rank
  for (int r = 0; r < size(); ++r) {
    auto at = size_t(2 * r);
    if (told[at] != expected[at] || told[at + 1] != expected[at + 1])
      fail(Exit::mismatch, "split: rank {} of {} takes color {}, key {}; expected color {}, key {}",
           r, group_.str(), told[at], told[at + 1], expected[at], expected[at + 1]);
    if (told[at] == own[0]) chosen.push_back({told[at + 1], r});
  }
  std::sort(chosen.begin(), chosen.end());

  Group group{.name = std::move(name), .traffic = traffic, .time_limit = group_.time_limit};
  for (auto [key, r] : chosen) {
    if (r == rank()) group.rank = group.size();
    group.members.push_back(group_.members[size_t(r)]);
  }
  return start_split(std::move(group), splits_++, int(own[0]));
}

std::shared_ptr<Allocator> Communicator::allocator() { return backend(device()).allocator(); }

Tensor Communicator::empty(const Shape& shape, DType dtype) {
  auto bytes = size_t(shape.numel()) * size_of(dtype);
  auto storage = make_storage(bytes, device(), allocator());
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape));
}

Work shift(Communicator& comm, const Tensor& mine, const Tensor& all, int by, Place place) {
  int n = comm.size();
  check(all.numel() == mine.numel() && by > 0 && by < n,
        "shift: mine has {} elements, all {}, by {} of {} ranks; expected the same number, by 1 at "
        "least",
        mine.numel(), all.numel(), by, n);
  std::vector<int64_t> rows(size_t(n) * size_t(n));
  for (int s = 0; s < n; ++s) rows[size_t(s * n + (s + by) % n)] = 1;
  return comm.all_to_all(mine.view({1, mine.numel()}), all.view({1, all.numel()}), rows, place);
}

}  // namespace triax::parallel
