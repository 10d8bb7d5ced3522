// Why a schedule cannot be better. A stage s is idle, whatever it does, on the
//   ramp: from its first forward to its first backward, a micro-batch passes all later stages and
//         comes back; meanwhile the stage has only forwards to do, as many as memory takes;
//   way out: from its last forward to that one's backward, likewise; meanwhile it has only what it
//         still holds to do.
// So it takes its work, its ramp and its way out. Also, from the first forward of s to the last
// backward of a later stage k and back to s: the way to k, all forwards and backwards of k with
// its ramp, those of its weights that memory does not let it put off, and the way back. Likewise to
// the last forward of k, and from there by the end of the model back to s.
#include <algorithm>
#include <cmath>

#include "triax/parallel/pipeline/synthesis/list_scheduler.h"

namespace triax::parallel::synthesis {
namespace {

/// Returns how many of `one` fit into `all`, at most `plenty`; equal sums differ by rounding.
int64_t count_in(double all, double one) {
  constexpr double plenty = std::numeric_limits<int32_t>::max();
  return one > 0 ? int64_t(std::min(std::floor(all / one + 1e-9), plenty)) : int64_t(plenty);
}

class Bounds {
 public:
  explicit Bounds(const Problem& p) : p_(p) {
    int last = p.virtual_stages() - 1;
    there_.resize(size_t(last) + 2);
    back_.resize(size_t(last) + 1);
    for (int v = 0; v <= last; ++v)
      there_[size_t(v) + 1] =
          there_[size_t(v)] + p.times[size_t(v)].forward + p.times[size_t(v)].latency;
    for (int v = last - 1; v >= 0; --v)
      back_[size_t(v)] =
          back_[size_t(v) + 1] + p.times[size_t(v) + 1].backward_input + p.times[size_t(v)].latency;
  }

  double best() const {
    double bound = 0;
    for (int s = 0; s < p_.shape.stages; ++s) {
      double idle = all_fit(s) ? std::max(ramp(s), drain_after(s)) : ramp(s) + drain_after(s);
      double stage = std::max(work(s) + idle, round_trips(s));
      bound = std::max(bound, stage + (makespan() ? there_[size_t(first(s))] : 0));
      for (int k = 0; k < p_.shape.stages; ++k)
        if (first(s) <= first(k) && (!makespan() || first(s) == 0))
          bound = std::max({bound, through(s, k), around(s, k)});
    }
    return bound;
  }

 private:
  bool makespan() const { return p_.budget.objective == Budget::makespan; }
  int first(int s) const { return p_.shape.virtual_stage(s, 0); }
  int last(int s) const { return p_.shape.virtual_stage(s, p_.shape.chunks - 1); }
  int64_t passes() const { return int64_t{p_.shape.micros} * p_.shape.chunks; }
  /// Returns how many whole activations stage s may hold.
  int64_t places(int s) const { return count_in(p_.budget.cap[size_t(s)], p_.activation); }
  /// Returns how many W stage s may owe while it holds `others` whole.
  int64_t owed_beside(int s, int64_t others) const {
    double left = p_.budget.cap[size_t(s)] - double(others) * p_.activation;
    return count_in(left, p_.budget.hold * p_.activation);
  }
  /// True if all forwards could go before the first backward.
  bool all_fit(int s) const { return passes() <= places(s); }

  template <class Time> double longest(int s, Time time) const {
    double most = 0;
    for (int c = 0; c < p_.shape.chunks; ++c) most = std::max(most, time(p_.times_of(s, c)));
    return most;
  }
  double forward(int s) const {
    return longest(s, [](auto& t) { return t.forward; });
  }
  double both_halves(int s) const {
    return longest(s, [](auto& t) { return t.backward_input + t.backward_weight; });
  }
  double weight(int s) const {
    return longest(s, [](auto& t) { return t.backward_weight; });
  }
  double work(int s) const {
    double all = 0;
    for (int c = 0; c < p_.shape.chunks; ++c) {
      const Durations& t = p_.times_of(s, c);
      all += p_.shape.micros * total(t);
    }
    return all;
  }

  double ramp(int s) const {
    double way = there_.back() - there_[size_t(first(s))] + back_[size_t(last(s))];
    return std::max(0., way - double(std::min(places(s), passes())) * forward(s));
  }

  /// Returns the most that a stage can have left to do, beside the last forward that it holds.
  double left_beside_last(int s) const {
    double most = 0;  // x wait for both halves, y for their weights
    for (int64_t x = 0; x < std::min(places(s), passes()); ++x) {
      int64_t y = std::min(passes() - 1 - x, owed_beside(s, x + 1));
      most = std::max(most, double(x) * both_halves(s) + double(y) * weight(s));
    }
    return most;
  }

  double drain_after(int s) const {
    double way = infinity;  // of the chunk that comes back first
    for (int c = 0; c < p_.shape.chunks; ++c) {
      auto v = size_t(p_.shape.virtual_stage(s, c));
      way = std::min(way, there_.back() - there_[v] - p_.times[v].forward + back_[v]);
    }
    return std::max(0., way - left_beside_last(s));
  }

  /// Returns the time of round trips of as many micro-batches at once as stage s may hold, while
  /// others wait; with their weights, if it may hold one and its backward's rest has no room.
  double round_trips(int s) const {
    auto v = size_t(first(s));
    double trip = there_.back() - there_[v] + back_[v] + p_.times[v].backward_input;
    double weight = p_.times[v].backward_weight;
    int64_t held = std::min(places(s), int64_t{p_.shape.micros});
    auto trips = double((p_.shape.micros + held - 1) / held);
    return trips * trip + (held == 1 && owed_beside(s, 1) == 0 ? trips : 1) * weight;
  }

  double through(int s, int k) const {
    auto v = size_t(first(s)), u = size_t(first(k));
    // When the last backward of k begins, its own activation is whole; of others W may be owed.
    int64_t owed = std::min(passes(), 1 + owed_beside(k, 1));
    double there = there_[u] - there_[v], back = back_[v] - back_[u];
    if (u > v) back += p_.times[v].backward_input - p_.times[u].backward_input;
    return there + ramp(k) + work(k) - double(owed) * weight(k) + back +
           p_.times[v].backward_weight;
  }

  /// Returns likewise, by the last forward of k: before it, k has done all but what it may then
  /// hold; after it, it goes to the end of the model and back to s.
  double around(int s, int k) const {
    auto v = size_t(first(s)), u = size_t(last(k));
    double done = work(k) + (all_fit(k) ? 0 : ramp(k)) - left_beside_last(k) - both_halves(k);
    double way = there_.back() - there_[u] - p_.times[u].forward + back_[v];
    return there_[size_t(first(k))] - there_[v] + done + way + p_.times[v].backward_input +
           p_.times[v].backward_weight;
  }

  const Problem& p_;
  std::vector<double> there_;  // the begin of v's first forward on an empty pipeline; last: the end
  std::vector<double> back_;   // from the last forward's end to the backward of v
};

}  // namespace

double lower_bound(const Problem& problem) { return Bounds(problem).best(); }

}  // namespace triax::parallel::synthesis
