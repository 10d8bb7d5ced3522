#include "examples/minigpt/launch.h"

#include <algorithm>
#include <atomic>

#include "examples/minigpt/stop_signal.h"
#include "examples/minigpt/train.h"
#include "parallel/comm/world.h"

namespace triax::minigpt {

Exit launch(const TrainConfig& config, int argc, char** argv) {
  StopSignal stop;
  std::atomic<Exit> result = Exit::ok;  // the same on all ranks
  auto rank = [&](parallel::World& world) { result = train(config, world.comm(), world.host()); };
  if (config.comm == "threads") {
    parallel::run_worlds(int(std::max<int64_t>(1, config.ranks)), rank);
  } else {
    parallel::World world(argc, argv);
    rank(world);
  }
  return result;
}

}  // namespace triax::minigpt
