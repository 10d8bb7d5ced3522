#pragma once
#include <string>
#include <vector>

#include "triax/parallel/plan/bench.h"
#include "triax/parallel/plan/hardware.h"

namespace triax::parallel {

/// The work of a stretch of kernels on a device, and its seconds there.
struct Measured {
  KernelWork work;
  double seconds = 0;
};

/// Returns the least-squares fit of relative errors: coefficients, none negative, whose products
/// with each row of `terms` come nearest to `values`, all positive. Rows are equally long.
std::vector<double> fit(const std::vector<std::vector<double>>& terms,
                        const std::vector<double>& values);

struct Calibration {
  Hardware hardware;
  double spread = 0;  ///< Bench::spread()
};
/// Measures a hardware file for the ranks of `world`, which all work at once: matrix products,
/// attention, norms, activations and whole transformer blocks in fp32 and bf16, AdamW, and
/// all-reduces. Rates are such that kernels counted on the meta device come out as measured, so
/// peaks are rates reached. Collective. Throws Error 78 for a world of several hosts.
Calibration calibrate(World& world, const Effort& effort = {});

/// Returns the text of a file that hardware_named() reads.
std::string hardware_file(const Hardware& h);

}  // namespace triax::parallel
