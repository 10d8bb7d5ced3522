#pragma once
#include <array>
#include <cstdint>

namespace triax::gpu_on_cpu {

/// What the stand-in for cuBLASLt was asked for so far, by all threads.
struct BlasCounts {
  int64_t invalid = 0;                ///< products that make no sense, rather than unsupported ones
  int64_t heuristics = 0;             ///< lists of algorithms
  uint32_t reductions = 0;            ///< schemes that the last of them might use
  std::array<int64_t, 3> products{};  ///< queued, by algorithm
  std::array<int64_t, 6> epilogues{};  ///< queued, in the order of cuda::Epilogue
  int64_t onto_others = 0;             ///< queued, that add a matrix that is not their result
  int64_t total() const { return products[0] + products[1] + products[2]; }
};
BlasCounts blas_counts();

/// How it behaves from now on.
struct BlasHabits {
  std::array<double, 3> ms{};   ///< what each algorithm takes on top
  double more_ms = 0;           ///< and gelu, its slope or sums inside of a product
  bool knows_epilogues = true;  ///< else it refuses them all
  int fails = -1;               ///< the algorithm that is listed, but cannot be queued
};
void set_blas_habits(const BlasHabits& habits);

}  // namespace triax::gpu_on_cpu
