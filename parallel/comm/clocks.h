#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

/// The clock of a rank.
struct HostClock {
  std::string host;              ///< ranks of one host have the same clock
  std::function<int64_t()> now;  ///< nanoseconds
};
/// Returns Profile::now(), and the boot that it counts from.
HostClock host_clock();

/// Returns the nanoseconds to add to this rank's clock to get rank 0's: 0 on rank 0's host, where
/// any measurement would be worse. Other ranks ask rank 0 for its time again and again: the fastest
/// answer counts, which is off by at most half of the time that it took (Cristian, "Probabilistic
/// clock synchronization", 1989). Collective.
int64_t clock_offset(Communicator& ranks, const HostClock& mine = host_clock());

}  // namespace triax::parallel
