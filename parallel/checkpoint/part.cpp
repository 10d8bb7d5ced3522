#include "triax/parallel/checkpoint/part.h"

#include <algorithm>
#include <queue>

#include "triax/core/check.h"

namespace triax::parallel {

namespace {

// A part as runs of consecutive elements of the full tensor. With the full tensor seen as
// [outer, size, inner], a slice of the middle dim is one run of length * inner elements at each
// multiple of size * inner. A position counts the slice's elements, an index the full tensor's.
class Runs {
 public:
  explicit Runs(const Part& p) {
    begin_ = p.flat_begin;
    end_ = p.flat_begin + count(p);
    if (begin_ == end_) return;  // else no size is 0, so neither are the divisors below
    int64_t inner = p.dim < 0 ? 1 : contiguous_strides(p.full)[p.dim];
    period_ = p.dim < 0 ? p.full.numel() : p.full[p.dim] * inner;
    offset_ = p.dim < 0 ? 0 : p.begin * inner;
    length_ = p.dim < 0 ? period_ : p.length * inner;
  }
  int64_t begin() const { return begin_; }
  int64_t end() const { return end_; }
  int64_t index(int64_t position) const {
    return position / length_ * period_ + offset_ + position % length_;
  }
  // Returns how many elements from `position` on are consecutive in the full tensor.
  int64_t left(int64_t position) const {
    return std::min(length_ - position % length_, end_ - position);
  }
  // Returns the first held position whose index is at least `index`; end() or more if none.
  int64_t first_from(int64_t index) const {
    int64_t run = index / period_, within = index % period_ - offset_;
    return std::max(begin_, run * length_ + std::clamp<int64_t>(within, 0, length_));
  }

 private:
  int64_t begin_ = 0, end_ = 0, period_ = 1, offset_ = 0, length_ = 1;
};

}  // namespace

std::string problem(const Part& p) {
  if (p.dim < -1 || p.dim >= p.full.rank()) return fmt::format("dim {} of {}", p.dim, p.full);
  if (p.dim == -1 && (p.begin != 0 || p.length != 0)) return "a slice without its dim";
  if (p.dim >= 0 && (p.begin < 0 || p.length < 0 || p.length > p.full[p.dim] ||
                     p.begin > p.full[p.dim] - p.length))
    return fmt::format("{} from {} of dim {} of {}", p.length, p.begin, p.dim, p.full);
  int64_t held = slice_shape(p).numel(), end = p.flat_end == -1 ? held : p.flat_end;
  if (p.flat_begin < 0 || p.flat_begin > end || end > held)
    return fmt::format("elements [{}, {}) of {}", p.flat_begin, end, held);
  return "";
}

Shape slice_shape(const Part& p) {
  Shape shape = p.full;
  if (p.dim >= 0) shape[p.dim] = p.length;
  return shape;
}

int64_t count(const Part& p) {
  return (p.flat_end == -1 ? slice_shape(p).numel() : p.flat_end) - p.flat_begin;
}

bool is_whole_slice(const Part& p) { return count(p) == slice_shape(p).numel(); }

Shape held_shape(const Part& p) { return is_whole_slice(p) ? slice_shape(p) : Shape{count(p)}; }

void for_each_overlap(const Part& to, const Part& from,
                      const std::function<void(const Overlap&)>& visit) {
  check(to.full == from.full, "part: of {} and of {}; expected parts of one tensor", to.full,
        from.full);
  Runs a(to), b(from);
  if (a.begin() == a.end() || b.begin() == b.end()) return;
  int64_t at_a = a.begin();
  while (at_a < a.end()) {
    int64_t at_b = b.first_from(a.index(at_a));
    if (at_b >= b.end()) return;
    int64_t skip = b.index(at_b) - a.index(at_a);
    if (skip >= a.left(at_a)) {  // not in this run of a
      at_a = a.first_from(b.index(at_b));
      continue;
    }
    at_a += skip;
    int64_t n = std::min(a.left(at_a), b.left(at_b));
    visit({at_a - a.begin(), at_b - b.begin(), n});
    at_a += n;
  }
}

Tiling tiling(const Shape& full, const std::vector<Part>& parts) {
  // Merge the runs of all parts by where they begin: each must begin where the last one ended.
  struct Next {
    int64_t index, position;
    size_t part;
    bool operator>(const Next& o) const { return index > o.index; }
  };
  std::vector<Runs> runs(parts.begin(), parts.end());
  std::priority_queue<Next, std::vector<Next>, std::greater<>> queue;
  auto add = [&](size_t part, int64_t position) {
    const Runs& r = runs[part];
    if (position < r.end()) queue.push({r.index(position), position, part});
  };
  for (size_t i = 0; i < parts.size(); ++i) add(i, runs[i].begin());
  int64_t covered = 0;
  while (!queue.empty()) {
    auto [index, position, part] = queue.top();
    queue.pop();
    if (index != covered) return {false, std::min(index, covered)};
    int64_t n = runs[part].left(position);
    covered += n;
    add(part, position + n);
  }
  return {covered == full.numel(), covered};
}

}  // namespace triax::parallel
