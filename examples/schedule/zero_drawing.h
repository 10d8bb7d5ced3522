#pragma once
#include <array>
#include <string>
#include <vector>

#include "parallel/data/data_parallel.h"

namespace triax::schedule {

/// A range of the model's elements, counted in the order in which buckets hold them.
struct Held {
  int64_t begin = 0, end = 0;
};

/// What one rank has between two steps of AdamW, and what the last step cost it.
struct ZeroHoldings {
  std::vector<Held> weights, gradients, moments;
  int64_t bytes = 0;  ///< of weights, gradients and moments, as counted
  double sent = 0;    ///< bytes in one step, logical (parallel/comm/ledger.h)
};

/// A model of equal layers, trained for a step by `DataParallel` on every stage of ZeRO.
struct ZeroComparison {
  int ranks = 1, layers = 4, micros = 2;
  int64_t elements = 0;                             ///< of the model
  std::array<std::vector<ZeroHoldings>, 4> stages;  ///< by stage of ZeRO, then rank
};

/// Trains it on threads. `ranks` from 1 to 8.
ZeroComparison compare_zero(int ranks);

/// A line for each stage of ZeRO: bytes held and sent by a rank.
std::string as_text(const ZeroComparison& comparison);

/// A file in SVG: stages of ZeRO from top to bottom, ranks from left to right.
std::string as_svg(const ZeroComparison& comparison);

}  // namespace triax::schedule
