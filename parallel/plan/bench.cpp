#include "parallel/plan/bench.h"

#include <algorithm>
#include <chrono>

namespace triax::parallel {

/// Of one run.
double Bench::time(const Work& work, int64_t runs) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  for (int64_t n = 0; n < runs; ++n) work();
  (void)zeros({1}, f32, device()).to_host<float>();  // waits for the device
  return std::chrono::duration<double>(Clock::now() - start).count() / double(runs);
}

size_t Bench::add(Work work) {
  work();  // memory, and code that is made at first use
  double once = std::max(1e-7, time(work, 1));
  auto runs = int64_t(std::clamp(effort_.round / once, 1., 10000.));
  Tensor least = from_host(std::vector<int64_t>{runs}, {1}, cpu);
  world_.host().all_reduce(least, ReduceOp::min).wait();
  // Work may be collective, so all ranks do it as often.
  entries_.push_back({std::move(work), least.to_host<int64_t>()[0], {}});
  return entries_.size() - 1;
}

std::vector<double> Bench::seconds() {
  for (int64_t i = 0; i < effort_.rounds; ++i)
    for (Entry& e : entries_) {
      world_.host().barrier();
      e.rounds.push_back(time(e.work, e.runs));
    }
  std::vector<double> medians;
  for (Entry& e : entries_) {
    auto middle = e.rounds.begin() + effort_.rounds / 2;
    std::ranges::nth_element(e.rounds, middle);
    medians.push_back(*middle / world_.size());
  }
  Tensor mean = from_host(medians, {std::ssize(medians)}, cpu);
  world_.host().all_reduce(mean).wait();
  return mean.to_host<double>();
}

}  // namespace triax::parallel
