#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

namespace triax {

/// Up to 8 sizes (or strides, in elements), kept in place: making one allocates nothing.
class Shape {
 public:
  static constexpr int max_rank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes);
  explicit Shape(std::span<const int64_t> sizes);

  int rank() const { return rank_; }
  /// Returns a size; negative `dim` counts from the end. Throws if out of range.
  int64_t operator[](int dim) const { return sizes_[size_t(index(dim))]; }
  int64_t& operator[](int dim) { return sizes_[size_t(index(dim))]; }
  int64_t back() const { return (*this)[-1]; }
  const int64_t* begin() const { return sizes_.data(); }
  const int64_t* end() const { return sizes_.data() + rank_; }
  void push_back(int64_t size);
  void erase(int dim);
  void insert(int dim, int64_t size);
  bool operator==(const Shape& o) const;

  /// Returns the product of all sizes; 1 for rank 0.
  int64_t numel() const;
  /// Returns `dim` as a number from 0; throws if out of range.
  int index(int dim) const;

 private:
  std::array<int64_t, max_rank> sizes_{};
  int rank_ = 0;
};

/// `[2, 3]`.
std::string str(const Shape& s);
/// Returns row-major strides, in elements.
Shape contiguous_strides(const Shape& s);
/// Broadcasts by NumPy's rule: align at the end, a size of 1 stretches. Errors name op and shapes.
Shape broadcast(const char* op, const Shape& a, const Shape& b);

}  // namespace triax
