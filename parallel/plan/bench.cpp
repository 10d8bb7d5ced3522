#include "triax/parallel/plan/bench.h"

#include <algorithm>
#include <chrono>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"

namespace triax::parallel {
namespace {

/// Seconds of a run that make those of a barrier negligible.
constexpr double barrier_is_nothing = 1e-3;

/// The most runs in a turn, and turns in a round.
constexpr double most = 10000;

}  // namespace

/// Returns the seconds of one run.
double Bench::time(const Entry& e) {
  using Clock = std::chrono::steady_clock;
  auto start = Clock::now();
  for (int64_t n = 0; n < e.runs; ++n) {
    e.work();
    if (e.waits) world_.host().barrier();
  }
  if (device().kind == Device::Kind::cuda)
    (void)zeros({1}, f32, device()).to_host<float>();  // waits for the device
  return std::chrono::duration<double>(Clock::now() - start).count() / double(e.runs);
}

size_t Bench::add(Work work) {
  Entry e{.work = std::move(work)};
  e.work();  // memory, and code that is made at first use
  double once = std::max(1e-7, time(e));
  // Work may be collective: all ranks run it equally often.
  e.once = reduced(world_.host(), once, ReduceOp::min);
  if (device().kind == Device::Kind::cuda)
    e.runs = int64_t(std::clamp(effort_.round / e.once, 1., most));
  e.waits = e.once > barrier_is_nothing;
  entries_.push_back(std::move(e));
  return entries_.size() - 1;
}

std::vector<double> Bench::seconds() {
  double all = 0;  // of a turn
  for (const Entry& e : entries_) all += e.once * double(e.runs);
  double turns = std::clamp(effort_.round * double(entries_.size()) / all, 1., most);
  for (int64_t i = 0; i < int64_t(double(effort_.rounds) * turns); ++i)
    for (Entry& e : entries_) {
      world_.host().barrier();
      e.turns.push_back(time(e));
    }
  std::vector<double> medians;
  for (Entry& e : entries_) {
    std::ranges::sort(e.turns);
    medians.push_back(e.turns[e.turns.size() / 2] / world_.size());
  }
  Tensor mean = from_host(medians, {std::ssize(medians)}, cpu);
  world_.host().all_reduce(mean).wait();
  return mean.to_host<double>();
}

double Bench::spread() {
  check(!entries_.empty() && !entries_[0].turns.empty(), "bench: spread before seconds()");
  std::vector<double> of;
  for (const Entry& e : entries_) {
    auto at = [&](double part) { return e.turns[size_t(part * double(e.turns.size() - 1))]; };
    of.push_back((at(0.75) - at(0.25)) / at(0.5));
  }
  auto middle = of.begin() + std::ssize(of) / 2;
  std::ranges::nth_element(of, middle);
  return reduced(world_.host(), *middle, ReduceOp::max);
}

}  // namespace triax::parallel
