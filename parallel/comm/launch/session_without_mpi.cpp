#include <cstdio>
#include <cstdlib>

#include "triax/core/check.h"
#include "triax/parallel/comm/launch/session.h"
#include "triax/parallel/comm/process.h"

namespace triax::parallel {

Session::Session(int&, char**&, std::optional<int> mpi) {
  check_input(!mpi, Exit::config, "world: ranks of MPI, but triax was built without it");
}
Session::~Session() = default;

std::unique_ptr<Communicator> Session::open(const WorldOptions& options, bool) {
  check_announced(1);
  return single_rank({.time_limit = options.time_limit});
}

void Session::close(std::unique_ptr<Communicator>) {}

void Session::abort(int code) noexcept {
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace triax::parallel
