#include "parallel/comm/movement.h"

#include <algorithm>
#include <cstring>

namespace triax::parallel {
namespace {

using From = std::vector<const std::byte*>;
using To = std::vector<std::byte*>;

bool by_slices(Call::Kind kind) {
  return kind == Call::all_gather || kind == Call::split || kind == Call::reduce_scatter ||
         kind == Call::gather || kind == Call::scatter;
}

void copy(const std::byte* from, std::byte* to, size_t bytes) {
  if (to && from != to) std::memcpy(to, from, bytes);
}

/// One stretch within slice `slice`: elements [begin, begin + count) of `all`, which start at
/// `offset` of that rank's `mine`.
struct Stretch {
  int slice;
  size_t all, mine, bytes;
};

void move_stretch(const Call& c, const Buffers& b, const Stretch& s) {
  size_t n = b.from.size(), slice = size_t(s.slice), root = size_t(c.peer);
  auto sum = [&](size_t read, const To& to) {
    if (std::all_of(to.begin(), to.end(), [](auto* y) { return !y; })) return;
    From from(n);
    for (size_t p = 0; p < n; ++p) from[p] = b.from[p] + read;
    reduce(c.op, c.dtype, from, to, int64_t(s.bytes / size_of(c.dtype)));
  };
  auto shifted = [](std::byte* to, size_t by) { return to ? to + by : nullptr; };
  switch (c.kind) {
    case Call::all_reduce: {
      To to(n);
      for (size_t p = 0; p < n; ++p) to[p] = shifted(b.to[p], s.all);
      return sum(s.all, to);
    }
    case Call::reduce:
      return sum(s.all, {shifted(b.to[root], s.all)});
    case Call::reduce_scatter:
      return sum(s.all, {shifted(b.to[slice], s.mine)});
    case Call::all_gather:
    case Call::split:
      for (size_t p = 0; p < n; ++p) copy(b.from[slice] + s.mine, shifted(b.to[p], s.all), s.bytes);
      return;
    case Call::gather:
      return copy(b.from[slice] + s.mine, shifted(b.to[root], s.all), s.bytes);
    case Call::scatter:
      return copy(b.from[root] + s.all, shifted(b.to[slice], s.mine), s.bytes);
    case Call::broadcast:
      for (size_t p = 0; p < n; ++p) copy(b.from[root] + s.all, shifted(b.to[p], s.all), s.bytes);
      return;
    case Call::send:  // the pair (sender, receiver) as a group of two
    case Call::recv:
      return copy(b.from[0] + s.all, shifted(b.to[1], s.all), s.bytes);
    case Call::barrier:
      return;
  }
}

}  // namespace

int64_t elements(const Call& call, int ranks) {
  return by_slices(call.kind) ? ranks * call.numel : call.numel;
}

void move(const Call& call, const Buffers& buffers, int64_t begin, int64_t end) {
  size_t size = size_of(call.dtype);
  while (begin < end) {
    int64_t slice = by_slices(call.kind) ? begin / call.numel : 0;
    int64_t first = slice * call.numel, count = std::min(end, first + call.numel) - begin;
    move_stretch(
        call, buffers,
        {int(slice), size_t(begin) * size, size_t(begin - first) * size, size_t(count) * size});
    begin += count;
  }
}

}  // namespace triax::parallel
