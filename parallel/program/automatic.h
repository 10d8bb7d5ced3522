#pragma once
#include <string>

#include "parallel/plan/plan.h"
#include "parallel/program/program.h"

namespace triax::parallel {

/// Chooses how a run trains on the ranks that there are: `train --auto`. What the user has given is
/// kept, and the global batch is what it would be without a choice.
class Automatic {
 public:
  /// Keeps a reference to `p`, whose `train` holds what was given.
  explicit Automatic(ProgramOptions& p) : program_(p) {}
  /// Returns its flags, bound to this.
  Settings settings();
  /// True if a choice is asked for. Throws Error 78 for options that do not go with that.
  bool asked() const;
  /// Returns, on every rank, a configuration with the settings that it chose, which rank 0 explains
  /// on stdout. Measures the hardware unless it is given or known from this run; a run that is
  /// resumed with as many ranks keeps its mesh. Trains a smaller model that way on threads of rank
  /// 0 and on one rank. Collective. Throws Error 78 if no plan fits, 1 if both trained differently.
  std::string choose(World& world, const Invocation& call);
  /// Returns the hardware file of this machine, to be kept with the run; empty if none was
  /// measured.
  const std::string& measured() const { return measured_; }

 private:
  std::string kept(int ranks);
  Hardware hardware(World& world);
  std::string search(const Hardware& h, int ranks, const Invocation& call);
  std::string verdict(const Plan& best, const Hardware& h);

  ProgramOptions& program_;
  bool on_ = false;
  std::string hardware_;  // name or file; empty: measured
  std::string measured_;
};

}  // namespace triax::parallel
