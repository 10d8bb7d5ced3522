#include "examples/minigpt/launch.h"

#include <algorithm>
#include <atomic>

#include "examples/minigpt/sample.h"
#include "examples/minigpt/train.h"
#include "parallel/comm/launch/devices.h"
#include "parallel/comm/launch/stop_signal.h"
#include "parallel/comm/launch/world.h"
#include "parallel/comm/launcher.h"

namespace triax::minigpt {
namespace {

parallel::WorldOptions world_options(const std::string& comm, const std::string& device) {
  using enum parallel::GpuTransport;
  auto transport = comm == "auto" ? automatic : comm == "nccl" ? nccl : host;
  return {.device = parallel::device_named(device), .gpu_transport = transport};
}

template <class Config, class Body>
Exit on_ranks(const Config& config, CommandLine line, const Body& body) {
  std::atomic<Exit> result = Exit::ok;  // the same on all ranks
  auto rank = [&](parallel::World& world) { result = body(world); };
  auto options = world_options(config.comm, config.device);
  if (config.comm == "threads") {
    parallel::check_not_launched();
    parallel::run_worlds(int(std::max<int64_t>(1, config.ranks)), rank, options);
  } else {
    parallel::World world(line.argc, line.argv, options);
    rank(world);
  }
  return result;
}

}  // namespace

Exit launch(const TrainConfig& config, CommandLine line) {
  parallel::StopSignal stop;
  return on_ranks(config, line, [&](parallel::World& world) {
    return train(config, world.comm(), world.host());
  });
}

Exit launch(const SampleConfig& config, CommandLine line) {
  return on_ranks(config, line, [&](parallel::World& world) {
    sample(config, world.comm(), world.host());
    return Exit::ok;
  });
}

}  // namespace triax::minigpt
