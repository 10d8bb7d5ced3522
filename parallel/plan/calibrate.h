#pragma once
#include <functional>
#include <string>
#include <vector>

#include "parallel/plan/bench.h"
#include "parallel/plan/hardware.h"

namespace triax::parallel {

/// What a stretch of kernels asks of a device, and how long it took there.
struct Measured {
  KernelWork work;
  double seconds = 0;
};

/// Least squares of relative errors: coefficients, none negative, of which the products with each
/// row of `terms` come nearest to `values`, all positive. Rows are as long as each other.
std::vector<double> fit(const std::vector<std::vector<double>>& terms,
                        const std::vector<double>& values);

struct Calibration {
  Hardware hardware;
  double spread = 0;  ///< Bench::spread()
};
/// Measures what a hardware file says of the ranks of `world`, which all work at once: matrix
/// products, attention, norms, activations and whole transformer blocks in fp32 and bf16, AdamW,
/// and all-reduces. Rates are such that kernels counted on the meta device come out as measured, so
/// peaks are rates reached. Collective. Throws Error 78 for a world of several hosts.
Calibration calibrate(World& world, const Effort& effort = {});

/// A file that hardware_named() reads.
std::string hardware_file(const Hardware& h);

}  // namespace triax::parallel
