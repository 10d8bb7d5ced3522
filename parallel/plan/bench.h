#pragma once
#include <functional>
#include <vector>

#include "parallel/comm/launch/world.h"

namespace triax::parallel {

/// How long to measure: so many rounds, in each of which every piece of work runs for at least
/// `round` seconds, or once.
struct Effort {
  double round = 0.03;
  int64_t rounds = 9;
  int64_t less = 1;  ///< calibrate() works on fewer tokens by this factor, which divides 64
};

/// Times work that all ranks of a world do at once. A round times every piece of work: what slows a
/// machine down for a while then slows all of them, and the median over rounds leaves it out.
class Bench {
 public:
  using Work = std::function<void()>;

  /// `world` must outlive it.
  Bench(World& world, const Effort& effort) : world_(world), effort_(effort) {}

  /// Returns the index of its time in the result of seconds(). Collective.
  size_t add(Work work);
  /// What one run of each takes: the median over the rounds, the mean of the ranks. Collective.
  std::vector<double> seconds();

  Device device() { return world_.comm().device(); }

 private:
  struct Entry {
    Work work;
    int64_t runs = 1;  ///< in a round
    /// For the other ranks after each run, as ranks that train do at collectives: the slowest
    /// counts.
    bool waits = false;
    std::vector<double> rounds = {};  ///< seconds of a run
  };
  double time(const Entry& e);

  World& world_;
  Effort effort_;
  std::vector<Entry> entries_;
};

}  // namespace triax::parallel
