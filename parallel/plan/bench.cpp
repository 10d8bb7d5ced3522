#include "parallel/plan/bench.h"

#include <algorithm>
#include <chrono>

namespace triax::parallel {
namespace {

/// Seconds of a run beside which those of a barrier are nothing.
constexpr double barrier_is_nothing = 1e-3;

}  // namespace

/// Of one run.
double Bench::time(const Entry& e) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  for (int64_t n = 0; n < e.runs; ++n) {
    e.work();
    if (e.waits) world_.host().barrier();
  }
  (void)zeros({1}, f32, device()).to_host<float>();  // waits for the device
  return std::chrono::duration<double>(Clock::now() - start).count() / double(e.runs);
}

size_t Bench::add(Work work) {
  Entry e{.work = std::move(work)};
  e.work();  // memory, and code that is made at first use
  double once = std::max(1e-7, time(e));
  Tensor least =
      from_host(std::vector<double>{std::clamp(effort_.round / once, 1., 10000.), once}, {2}, cpu);
  world_.host().all_reduce(least, ReduceOp::min).wait();
  auto agreed = least.to_host<double>();  // work may be collective: all ranks do it as often
  e.runs = int64_t(agreed[0]);
  e.waits = agreed[1] > barrier_is_nothing;
  entries_.push_back(std::move(e));
  return entries_.size() - 1;
}

std::vector<double> Bench::seconds() {
  for (int64_t i = 0; i < effort_.rounds; ++i)
    for (Entry& e : entries_) {
      world_.host().barrier();
      e.rounds.push_back(time(e));
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
