#include "triax/parallel/pipeline/synthesis/synthesis.h"

#include <algorithm>
#include <cmath>

#include "triax/core/check.h"
#include "triax/parallel/pipeline/check_schedule.h"
#include "triax/parallel/pipeline/synthesis/search.h"

namespace triax::parallel {
namespace synthesis {

Problem::Problem(const PipelineShape& s, const StageTimes& t, const Budget& b)
    : shape(s),
      times(t),
      budget(b),
      activation(1. / s.chunks),
      growth(std::max(0., b.hold - 1) * activation),
      rounding(1e-9 * busiest(s, t) / s.micros) {
  for (int v = 0; v < virtual_stages(); ++v)
    if (v + 1 == virtual_stages() || s.stage_of(v) == s.stage_of(v + 1))
      times[size_t(v)].latency = 0;
}

namespace {

/// Offers the named schedules, in halves and, where those may take more memory, whole.
void offer_named(Search& search, const Problem& p) {
  auto offer = [&](const std::vector<Actions>& lists) {
    search.offer_order(lists);
    if (within(p.budget, peak_memory(lists, p.shape, p.budget.hold)))
      search.offer(lists, cost_of(simulate(lists, p.shape, p.times), p.budget.objective));
  };
  for (const std::string& name : schedule_names()) {
    Schedule schedule = schedule_named(name);
    if (schedule.placement != p.shape.placement || schedule.chunks != p.shape.chunks) continue;
    auto whole = lists_that_fit(schedule, p.shape), halves = whole;
    if (whole.empty()) continue;
    for (Actions& list : halves) list = split_backward(list, 0);
    offer(halves);
    if (p.growth > 0) offer(whole);
  }
}

}  // namespace
}  // namespace synthesis

const char* name(Budget::Objective objective) {
  return objective == Budget::makespan ? "makespan" : "span";
}

double lower_bound(const PipelineShape& shape, const StageTimes& times, const Budget& budget) {
  Budget most = budget;
  for (double& cap : most.cap)  // host memory has room
    if (offloads(times)) cap = std::max(cap, shape.micros * std::max(1., budget.hold));
  return synthesis::lower_bound(synthesis::Problem(shape, times, most));
}

double cost_of(const Simulation& simulation, Budget::Objective objective) {
  if (objective == Budget::makespan) return simulation.time;
  double longest = 0;
  const auto& actions = simulation.actions;
  for (size_t begin = 0, end; begin < actions.size(); begin = end) {  // of one stage
    for (end = begin; end < actions.size() && actions[end].stage == actions[begin].stage;) ++end;
    longest = std::max(longest, actions[end - 1].end - actions[begin].begin);
  }
  return longest;
}

double busiest(const PipelineShape& shape, const StageTimes& times) {
  double most = 0;
  for (int stage = 0; stage < shape.stages; ++stage) {
    double work = 0;
    for (int c = 0; c < shape.chunks; ++c) {
      const Durations& t = times[size_t(shape.virtual_stage(stage, c))];
      work += synthesis::total(t);
    }
    most = std::max(most, work * shape.micros);
  }
  return most;
}

std::vector<Actions> lists_that_fit(const Schedule& schedule, const PipelineShape& shape) try {
  auto lists = lists_of(schedule, shape);
  check_schedule([&](auto&, int stage) { return lists[size_t(stage)]; }, shape);
  return lists;
} catch (const Error& e) {
  if (e.code() != Exit::config) throw;
  return {};
}

bool within(const Budget& budget, const std::vector<double>& peak) {
  for (size_t s = 0; s < peak.size(); ++s)
    if (peak[s] > budget.cap[s] + 1e-9) return false;
  return true;
}

double most_held(const Actions& list, const PipelineShape& shape, double hold) {
  int64_t whole = 0, halves = 0;
  double most = 0;
  for (const Action& a : list) {
    if (a.kind == Action::forward || a.kind == Action::reload) ++whole;
    else if (a.kind != Action::backward_weight) --whole;
    if (a.kind == Action::backward_input) ++halves;
    if (a.kind == Action::backward_weight) --halves;
    most = std::max(most, double(whole) + hold * double(halves));
  }
  return most / shape.chunks;
}

std::vector<double> peak_memory(const std::vector<Actions>& lists, const PipelineShape& shape,
                                double hold) {
  return transformed(lists, [&](auto& list) { return most_held(list, shape, hold); });
}

void check_times(const PipelineShape& shape, const StageTimes& times) {
  check_input(std::ssize(times) == shape.virtual_stages(), Exit::config,
              "times of {} stages and chunks; expected {} ({} stages x {} chunks)", times.size(),
              shape.virtual_stages(), shape.stages, shape.chunks);
  for (const Durations& t : times) {
    bool finite = true;
    for (double x : {t.forward, t.backward_input, t.backward_weight, t.latency, t.copy})
      finite = finite && x >= 0 && x <= 1e12;
    check_input(finite && t.forward > 0 && t.backward_input > 0 && t.backward_weight > 0,
                Exit::config,
                "times {},{},{},{},{}; expected forward, input and weight above 0, latency and "
                "copy from 0, at most 1e12",
                t.forward, t.backward_input, t.backward_weight, t.latency, t.copy);
  }
}

void check_budget(const PipelineShape& shape, const Budget& budget) {
  check_input(std::ssize(budget.cap) == shape.stages, Exit::config,
              "memory of {} stages; expected of {}", budget.cap.size(), shape.stages);
  check_input(budget.hold >= 0 && budget.hold <= 1000, Exit::config, "hold {}; expected 0 to 1000",
              budget.hold);
  for (double cap : budget.cap)
    check_input(cap >= 1 && cap <= 1e9, Exit::config,
                "memory for {} activations; expected for 1 to 1e9", cap);
  check_input(budget.tries >= 0, Exit::config, "tries {}; expected at least 0", budget.tries);
}

namespace {

/// Searches without host memory.
Synthesis searched(const PipelineShape& shape, const StageTimes& times, const Budget& budget,
                   uint64_t seed, const SearchWatch& watch) {
  synthesis::Problem problem(shape, times, budget);
  synthesis::Search search(problem, seed, watch);
  synthesis::offer_named(search, problem);
  search.run();
  return {search.lists(), search.cost(), search.bound(), {}};
}

/// Returns `found`, or what is cheaper: a schedule of more memory, with activations offloaded.
Synthesis offloading(Synthesis found, const PipelineShape& shape, const StageTimes& times,
                     const Budget& budget, uint64_t seed) {
  found.bound = lower_bound(shape, times, budget);
  Budget larger = budget;
  larger.tries = (budget.tries + 3) / 4, larger.effort = budget.effort / 4;
  for (double more : {2., 4., 6.}) {
    std::vector<double> before = larger.cap;
    for (size_t s = 0; s < larger.cap.size(); ++s)
      larger.cap[s] = std::min(budget.cap[s] * more, std::max(budget.cap[s], double(shape.micros)));
    if (found.optimal() || larger.cap == before) break;
    auto lists = searched(shape, times, larger, seed, {}).lists;
    if (!lists.empty()) lists = offloaded(lists, shape, times, budget);
    if (lists.empty()) continue;
    double cost = cost_of(simulate(lists, shape, times), budget.objective);
    if (cost < found.cost) found.lists = std::move(lists), found.cost = cost;
  }
  return found;
}

}  // namespace

Synthesis synthesize(const PipelineShape& shape, const StageTimes& times, const Budget& budget,
                     uint64_t seed, const SearchWatch& watch) {
  bool known = shape.chunks == 1 || (shape.chunks == 2 && shape.placement == Placement::v);
  check_input(
      shape.stages > 0 && shape.micros > 0 && known, Exit::config,
      "search: {} stages, {} chunks a stage, {} micro-batches; expected one chunk, or two in "
      "a V, and at least 1 of the others",
      shape.stages, shape.chunks, shape.micros);
  check_times(shape, times);
  check_budget(shape, budget);
  Synthesis found = searched(shape, times, budget, seed, watch);
  if (offloads(times)) found = offloading(std::move(found), shape, times, budget, seed);
  check_input(!found.lists.empty(), Exit::config,
              "search: found nothing in {} tries\n  Raise --tries, or leave it out.", budget.tries);
  check_schedule([&](auto&, int stage) { return found.lists[size_t(stage)]; }, shape);
  found.peak = peak_memory(found.lists, shape, budget.hold);
  check(within(budget, found.peak), "search: found lists that hold too much");
  double simulated = cost_of(simulate(found.lists, shape, times), budget.objective);
  check(std::fabs(found.cost - simulated) <= 1e-9 * simulated,
        "search: found lists that cost {}; simulated they cost {}", found.cost, simulated);
  return found;
}

}  // namespace triax::parallel
