#pragma once
#include <functional>

#include "triax/parallel/comm/communicator.h"

namespace triax::parallel {

struct ThreadGroup;

/// Ranks that are threads of one process. Peers work on each other's tensors directly, and whoever
/// waits does the work that is left, so a rank that computes holds nobody up once it has called. A
/// send finishes only with its receive. An error on one rank ends the waits of all others at once.
class ThreadComm final : public Communicator {
 public:
  /// Makes rank `group.rank` of a group whose members share `peers`.
  ThreadComm(std::shared_ptr<ThreadGroup> peers, Group group);
  const char* transport() const override { return "threads"; }

 private:
  Work start(Transfer t) override;
  std::unique_ptr<Communicator> start_split(Group group, int number, int color) override;
  std::shared_ptr<ThreadGroup> peers_;
  int64_t collectives_ = 0;
};

struct ThreadOptions {
  double time_limit = Group::default_time_limit();  ///< seconds
};

/// Runs `rank` on `ranks` threads, each with its own memory counter and number of threads. Throws
/// the first error after all have ended; errors of other ranks that follow from it are dropped.
void run_ranks(int ranks, const std::function<void(Communicator& world)>& rank,
               ThreadOptions options = {});
/// Like `run_ranks`, for a rank that keeps its communicator.
void run_thread_ranks(int ranks, const std::function<void(std::unique_ptr<Communicator>)>& rank,
                      ThreadOptions options = {});

/// Returns a world of one rank.
std::unique_ptr<Communicator> single_rank(ThreadOptions options = {});

}  // namespace triax::parallel
