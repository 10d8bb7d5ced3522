#pragma once
#include <stdexcept>
#include <string>

namespace triax {

/// Exit codes of every triax program (the numbers of BSD's sysexits where one fits).
enum class Exit : int {
  ok = 0,
  differs = 1,        ///< the two runs that were compared differ
  usage = 64,         ///< bad flag
  data = 65,          ///< damaged or incompatible input: checkpoint, data, tokenizer
  not_found = 66,     ///< input that does not exist
  internal = 70,      ///< misuse of an op, or a mistake in triax
  memory = 71,        ///< out of memory, host or device
  peer_lost = 72,     ///< a peer was lost, or no progress within the time limit; worth a retry
  cannot_write = 73,  ///< disk full, permission
  io = 74,            ///< input-output error
  stopped = 75,       ///< stopped by a signal, checkpoint saved; worth a retry
  mismatch = 76,      ///< ranks called different collectives, or hold different replicas
  non_finite = 77,    ///< non-finite loss or gradient, or loss scale exhausted
  config = 78,        ///< invalid configuration, nothing was started
};

/// The one exception of triax. Libraries throw it; only `main` turns it into an exit code.
/// `what()` reads `op: what is wrong, with values; what was expected`.
class Error : public std::runtime_error {
 public:
  Error(Exit code, const std::string& what, std::string place = {}, int rank = -1)
      : std::runtime_error(what), code_(code), place_(std::move(place)), rank_(rank) {}
  /// Returns this error with another text.
  Error saying(const std::string& what) const { return Error(code_, what, place_, rank_); }
  Exit code() const { return code_; }
  /// Returns `file:line` of the check that failed.
  const std::string& place() const { return place_; }
  /// Returns the world rank on which it arose, where others throw it too; -1: this one.
  int rank() const { return rank_; }

 private:
  Exit code_;
  std::string place_;
  int rank_;
};

}  // namespace triax
