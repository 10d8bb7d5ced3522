#pragma once
#include <string>
#include <vector>

#include "triax/nn/samples.h"

namespace triax::test {

/// A data set whose sample i is the number i; its target is 10 i, and it weighs i + 1. A blank is
/// -1 with target -1.
struct Numbers : nn::Samples {
  explicit Numbers(int64_t n) : n_(n) {}
  int64_t count() const override { return n_; }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    std::vector<int64_t> input(indices.begin(), indices.end()), target;
    for (int64_t i : indices) target.push_back(i < 0 ? -1 : 10 * i);
    Shape shape{int64_t(input.size())};
    return {.input = from_host(input, shape, cpu), .target = from_host(target, shape, cpu)};
  }
  double weight(int64_t index) const override { return double(index + 1); }
  std::string identity() const override { return std::to_string(n_); }

 private:
  int64_t n_;
};

/// What a batch of them holds.
inline std::vector<int64_t> numbers(const nn::Batch& b) { return b.input.to_host<int64_t>(); }

}  // namespace triax::test
