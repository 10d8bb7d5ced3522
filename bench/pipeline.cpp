// How much longer a step of a pipeline takes than its simulation: every schedule on 2 to 8 stages,
// which are threads whose layers sleep, on links of known latency. A row: the schedule, and per
// number of stages the median of the rounds and the run that was nearest, in percent.
//
//   bench_pipeline [ROUNDS [overlay | FILE..]]   default: 5
//
// overlay: than the simulation that scripts/overlay.py makes of the trace of the step. FILE: of
// schedules that `schedule --search --save` has found, with their own times but for the unit.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "tests/support/overlay.h"

namespace {

double longer_than_overlay(const std::string& name, int stages, double unit) {
  auto o = triax::test::overlay_of_step(name, stages, unit);
  return o.measured / o.simulated - 1;
}

double longer_than_simulation(const std::string& name, int stages, double unit) {
  return triax::test::longer_than_simulated(triax::test::TimedPipeline::equal(name, stages, unit));
}

void print_rounds(int rounds, const std::function<double()>& measure) {
  std::vector<double> percent;
  for (int i = 0; i < rounds; ++i) percent.push_back(100 * measure());
  std::ranges::sort(percent);
  double nearest = *std::ranges::min_element(percent, {}, [](double x) { return std::abs(x); });
  fmt::print("{:>8.2f}{:>7.2f}", percent[percent.size() / 2], nearest);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace triax;
  constexpr double unit = 0.02;
  int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
  bool overlay = words == std::vector<std::string>{"overlay"};
  if (!words.empty() && !overlay) {
    for (auto& path : words) {
      auto found = test::TimedPipeline::of(parallel::read_schedule(path), 3 * unit);
      fmt::print("{:<30}", path);
      print_rounds(rounds, [&] { return test::longer_than_simulated(found); });
      fmt::print("\n");
    }
    return 0;
  }
  constexpr int stages[] = {2, 3, 4, 6, 8};
  fmt::print("{:<15}", "stages");
  for (int p : stages) fmt::print("{:>15}", p);
  for (auto& name : parallel::schedule_names()) {
    fmt::print("\n{:<15}", name);
    for (int p : stages)
      print_rounds(rounds, [&] {
        return overlay ? longer_than_overlay(name, p, unit) : longer_than_simulation(name, p, unit);
      });
  }
  fmt::print("\n");
}
