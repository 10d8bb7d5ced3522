#include "examples/minigpt/launch.h"

#include <algorithm>
#include <atomic>

#include "examples/minigpt/stop_signal.h"
#include "examples/minigpt/train.h"
#include "parallel/comm/thread_comm.h"

namespace triax::minigpt {

Exit launch(const TrainConfig& config) {
  StopSignal stop;
  std::atomic<Exit> result = Exit::ok;
  parallel::run_ranks(int(std::max<int64_t>(1, config.ranks)), [&](parallel::Communicator& world) {
    auto host = world.split(0, world.rank(), "host");
    Exit mine = train(config, world, *host);
    if (world.rank() == 0) result = mine;
  });
  return result;
}

}  // namespace triax::minigpt
