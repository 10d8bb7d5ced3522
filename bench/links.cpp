// minigpt whose ranks, threads of one process, are joined by links of a given speed, which move
// bytes by themselves as network cards do. What overlaps and what does not shows in step times.
//   bench_links train --ranks 2 --tp 2 --sequence-parallel --tp-pieces 4 --latency-ms 1 --gbits 1
#include "examples/minigpt/config.h"
#include "tests/support/link_comm.h"

using namespace triax;

int main(int argc, char** argv) {
  minigpt::Config config;
  text::SampleOptions sample;
  auto options = minigpt::program_options(config, sample);
  double latency_ms = 0, gbits = 1;
  parallel::SettingGroup group("Link", parallel::OnResume::free);
  group.add("latency-ms", "X", "of a transfer, in milliseconds", &latency_ms, {.range = {.min = 0}})
      .add("gbits", "X", "bandwidth in Gbit/s", &gbits, {.range = {.min = 0, .open_min = true}});
  options.settings = parallel::joined({options.settings, group});
  std::once_flag made;
  std::shared_ptr<test::Wires> wires;
  options.train.launch.wrap = [&](std::unique_ptr<parallel::Communicator> world) {
    std::call_once(made, [&] {
      wires = std::make_shared<test::Wires>(test::LinkSpeed{latency_ms * 1e-3, gbits / 8e-9});
    });
    return std::make_unique<test::LinkComm>(std::move(world), wires);
  };
  return parallel::program(argc, argv, options);
}
