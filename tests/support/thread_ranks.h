#pragma once
#include <exception>
#include <functional>
#include <vector>

#include "triax/parallel/comm/threads/thread_comm.h"

namespace triax::test {

/// Run `body` as `size` ranks, threads of this process. Returns what each rank threw (null:
/// nothing). A rank that waits ten seconds for the others throws.
inline std::vector<std::exception_ptr> thrown_by_ranks(
    int size, const std::function<void(parallel::Communicator&)>& body) {
  std::vector<std::exception_ptr> thrown{size_t(size)};
  parallel::run_ranks(size,
                      [&](parallel::Communicator& ranks) {
                        try {
                          body(ranks);
                        } catch (...) {
                          thrown[size_t(ranks.rank())] = std::current_exception();
                        }
                      },
                      {.time_limit = 10});
  return thrown;
}

}  // namespace triax::test
