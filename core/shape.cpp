#include "triax/core/shape.h"

#include <algorithm>

#include "triax/core/check.h"

namespace triax {

std::string str(Device d) {
  if (d == meta_device) return "meta";
  return d.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", d.index);
}

Shape::Shape(std::initializer_list<int64_t> sizes)
    : Shape(std::span(sizes.begin(), sizes.size())) {}

Shape::Shape(std::span<const int64_t> sizes) {
  check(sizes.size() <= max_rank, "shape: {} dims; at most {} are supported", sizes.size(),
        int(max_rank));
  std::copy(sizes.begin(), sizes.end(), sizes_.begin());
  rank_ = int(sizes.size());
}

int Shape::index(int dim) const {
  int i = dim < 0 ? dim + rank_ : dim;
  check(i >= 0 && i < rank_, "shape: dim {} of {}; expected {} to {}", dim, *this, -rank_,
        rank_ - 1);
  return i;
}

void Shape::push_back(int64_t size) { insert(rank_, size); }

void Shape::insert(int dim, int64_t size) {
  check(rank_ < max_rank, "shape: {} already has {} dims, the most supported", *this, rank_);
  check(dim >= 0 && dim <= rank_, "shape: insert at dim {} of {}", dim, *this);
  std::copy_backward(sizes_.begin() + dim, sizes_.begin() + rank_, sizes_.begin() + rank_ + 1);
  sizes_[size_t(dim)] = size;
  ++rank_;
}

void Shape::erase(int dim) {
  dim = index(dim);
  std::copy(sizes_.begin() + dim + 1, sizes_.begin() + rank_, sizes_.begin() + dim);
  sizes_[size_t(--rank_)] = 0;
}

bool Shape::operator==(const Shape& o) const {
  return rank_ == o.rank_ && std::equal(begin(), end(), o.begin());
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t s : *this) n *= s;
  return n;
}

std::string str(const Shape& s) { return fmt::format("[{}]", join(s, ", ")); }

Shape contiguous_strides(const Shape& s) {
  Shape strides = s;
  int64_t step = 1;
  for (int d = s.rank() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= s[d];
  }
  return strides;
}

Shape broadcast(const char* op, const Shape& a, const Shape& b) {
  Shape longer = a.rank() >= b.rank() ? a : b, y = longer;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  for (int d = 1; d <= shorter.rank(); ++d) {
    int64_t x = longer[-d], z = shorter[-d];
    check(x == z || x == 1 || z == 1,
          "{}: shapes {} and {} do not broadcast; sizes must be equal or 1, counted from the end",
          op, a, b);
    y[-d] = x == 1 ? z : x;
  }
  return y;
}

}  // namespace triax
