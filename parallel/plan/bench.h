#pragma once
#include <functional>
#include <vector>

#include "triax/parallel/comm/launch/world.h"

namespace triax::parallel {

/// The length of a measurement: this many rounds, in which the pieces of work run for `round`
/// seconds each on average, or once.
struct Effort {
  double round = 0.03;
  int64_t rounds = 9;
  int64_t less = 1;  ///< calibrate() takes fewer tokens by this factor, which divides 64
};

/// Times work that all ranks of a world do at once, all pieces in turn: a slowdown of the machine
/// then hits all of them, and the median leaves it out. On a CPU each piece runs once in its turn,
/// so that the others have taken its tensors out of the caches, as the rest of a step does. On a
/// GPU it runs repeatedly, so that the host is not waited for.
class Bench {
 public:
  using Work = std::function<void()>;

  /// `world` must outlive it.
  Bench(World& world, const Effort& effort) : world_(world), effort_(effort) {}

  /// Adds work; returns the index of its time in the result of seconds(). Collective.
  size_t add(Work work);
  /// Returns seconds of one run of each: median over the turns, mean over the ranks. Collective.
  std::vector<double> seconds();
  /// Returns, after seconds(), the spread of the middle half of a piece's turns relative to their
  /// median: the median over the pieces, on the rank where it is largest. Collective.
  double spread();

  Device device() { return world_.comm().device(); }

 private:
  struct Entry {
    Work work;
    double once = 0;   ///< seconds of a run, about
    int64_t runs = 1;  ///< in a turn
    /// True if it waits for the other ranks after each run, as training does at collectives: the
    /// slowest counts.
    bool waits = false;
    std::vector<double> turns = {};  ///< seconds of a run in each
  };
  double time(const Entry& e);

  World& world_;
  Effort effort_;
  std::vector<Entry> entries_;
};

}  // namespace triax::parallel
