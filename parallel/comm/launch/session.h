#pragma once
#include <memory>
#include <optional>

#include "triax/parallel/comm/launch/world.h"

namespace triax::parallel {

/// The start of this process: by a launcher with others, or alone. Made once; another one made
/// while MPI runs only looks. session.cpp has it with MPI, session_without_mpi.cpp without.
class Session : Immovable {
 public:
  /// Throws Error 78 if the launcher announced more ranks than have found each other; for a process
  /// that is alone, open() does. Ends the process if they do not meet within TRIAX_START_TIMEOUT.
  /// `mpi` is WorldOptions::mpi.
  Session(int& argc, char**& argv, std::optional<int> mpi = {});
  ~Session();

  int rank() const { return rank_; }
  int size() const { return size_; }
  int local_rank() const { return local_rank_; }
  int local_size() const { return local_size_; }
  /// Returns the number of ranks whose affinity masks overlap with this one's, itself included.
  int sharing() const { return sharing_; }

  /// Opens the world's communicator. Collective.
  std::unique_ptr<Communicator> open(const WorldOptions& options, bool crowded);
  /// Closes the world, after everything split from it. Collective.
  void close(std::unique_ptr<Communicator> world);
  /// Ends all ranks.
  [[noreturn]] void abort(int code) noexcept;

 private:
  [[maybe_unused]] bool alone_ = false;  ///< started by hand, without MPI
  [[maybe_unused]] bool owns_ = false;   ///< it started MPI and ends it
  [[maybe_unused]] std::optional<int> mpi_ = {};
  [[maybe_unused]] double time_limit_ = Group::default_time_limit();
  int rank_ = 0, size_ = 1, local_rank_ = 0, local_size_ = 1, sharing_ = 1;
};

}  // namespace triax::parallel
