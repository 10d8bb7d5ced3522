#include "examples/minigpt/agreement.h"

#include <ctime>
#include <sstream>

#include "core/check.h"
#include "examples/minigpt/offload.h"

namespace triax::minigpt {
namespace {

std::string timestamp() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

}  // namespace

void settle(TrainConfig& config, parallel::Communicator& ranks) {
  TrainConfig trial = config;
  resolve(trial, ranks.size(), "now");
  validate(trial, ranks.size());
  parallel::together(ranks, [&] { check_offload(trial); });
  resolve(config, ranks.size(), parallel::on_first(ranks, &timestamp));
}

void check_agreement(parallel::Communicator& ranks, const std::string& mine) {
  auto told = parallel::gather_text(ranks, mine);
  parallel::on_first(ranks, [&] {
    for (size_t r = 1; r < told.size(); ++r) {
      std::istringstream first(told[0]), other(told[r]);
      for (std::string a, b; std::getline(first, a) && std::getline(other, b);)
        check_input(a == b, Exit::config,
                    "ranks disagree about the run\n  rank 0: {}\n  rank {}: {}\n"
                    "  Start every rank with the same flags, configuration and text.",
                    a, r, b);
    }
    return "";
  });
}

}  // namespace triax::minigpt
