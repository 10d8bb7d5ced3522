// How much longer a step of a pipeline takes than its simulation: every schedule on 2 to 8 stages,
// which are threads whose layers sleep, on links of known latency. A row: the schedule, and per
// number of stages the median of the rounds and the run that was nearest, in percent.
//
//   bench_pipeline [ROUNDS [overlay]]   default: 5
//
// overlay: than the simulation that `schedule --overlay` makes of the trace of the step.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "parallel/program/report/overlay.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/timed_pipeline.h"

namespace {

double longer_than_overlay(const std::string& name, int stages, double unit) {
  triax::test::TemporaryDirectory directory;
  triax::test::trace_step(directory / "trace.json", name, stages, unit);
  return longer(triax::parallel::report::read_overlay(directory / "trace.json"));
}

}  // namespace

int main(int argc, char** argv) {
  using namespace triax;
  int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  auto measure = argc > 2 ? longer_than_overlay : test::longer_than_simulated;
  constexpr int stages[] = {2, 3, 4, 6, 8};
  fmt::print("{:<15}", "stages");
  for (int p : stages) fmt::print("{:>15}", p);
  for (auto& name : parallel::schedule_names()) {
    fmt::print("\n{:<15}", name);
    for (int p : stages) {
      std::vector<double> percent;
      for (int i = 0; i < rounds; ++i) percent.push_back(100 * measure(name, p, 0.02));
      std::ranges::sort(percent);
      double median = percent[percent.size() / 2];
      double nearest = *std::ranges::min_element(percent, {}, [](double x) { return std::abs(x); });
      fmt::print("{:>8.2f}{:>7.2f}", median, nearest);
    }
    std::fflush(stdout);
  }
  fmt::print("\n");
}
