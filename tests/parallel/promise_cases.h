#pragma once
#include <string>

#include "triax/parallel/comm/communicator.h"

// What scripts/campaign.sh counts of communicators, for ranks of every transport.
namespace triax::parallel::cases {

/// Pairs of calls that differ, each made by rank 1 and by the others: every rank must get Error 76
/// within a second, with both calls and both places. Returns `N kinds, slowest S s`, or throws. Of
/// ranks that are processes and share no memory only those that compare get it: call it with two.
std::string check_mismatches(Communicator& world);

/// `calls` collectives and messages of random kinds and sizes, alike on all ranks: no alarm, and
/// right sums. Returns the seconds of one, or throws.
double check_no_alarm(Communicator& world, int64_t calls, uint64_t seed);

/// Seconds that comparing one call with that of a peer takes.
double seconds_to_compare();

}  // namespace triax::parallel::cases
