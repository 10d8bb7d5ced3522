#include <csignal>

#include "core/error.h"
#include "parallel/comm/failure.h"
#include "parallel/comm/launch/session.h"
#include "parallel/comm/launcher.h"

namespace triax::parallel {
namespace {

class Unknown final : public std::exception {
  const char* what() const noexcept override { return "an exception that is no std::exception"; }
};

}  // namespace

int run_main(int argc, char** argv, const std::function<int(int, char**)>& body) {
  // A write beyond `ulimit -f` then fails with EFBIG, which can be reported.
  std::signal(SIGXFSZ, SIG_IGN);
  std::unique_ptr<Session> session;
  auto failed = [&](const std::exception& e) {
    int rank = session ? session->rank() : announced_by_launcher().rank;
    // Before ranks know each other only a configuration is wrong for all of them.
    bool all_alike = !session && exit_code(e) == int(Exit::config);
    if (!all_alike || rank == 0 || every_rank_may_speak()) report_failure(e, rank);
    if (session && session->size() > 1) session->abort(exit_code(e));
    return exit_code(e);
  };
  try {
    session = std::make_unique<Session>(argc, argv);
    return body(argc, argv);
  } catch (const std::exception& e) {
    return failed(e);
  } catch (...) {
    return failed(Unknown());
  }
}

}  // namespace triax::parallel
