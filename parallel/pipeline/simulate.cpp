#include "triax/parallel/pipeline/simulate.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// A send or a receive that a stage has started.
struct Posted {
  Handover handover;
  bool sends = false;
  double at = 0;
};

/// The handovers that a stage has started on one channel, and the end of the last one done.
struct Queue {
  std::deque<Posted> posted;
  double free_from = 0;
};

struct Stage {
  const Actions* list = nullptr;
  size_t next = 0;
  double clock = 0;
  std::map<int, std::deque<Handover>> coming;  // by channel, in order; the first is posted
  std::map<int, Queue> queues;                 // by channel
  std::multimap<Handover, double> arrived;     // with times, until the action that needs it begins
  using Key = std::pair<int, int>;             // chunk, micro-batch
  std::map<Key, double> copy;                  // the durations of copies to the host
  std::map<Key, double> away, back;            // the ends of copies
  double lane_out = 0, lane_back = 0;          // the ends of the last ones
};

class Ring {
 public:
  Ring(const std::vector<Actions>& lists, const PipelineShape& shape, const StageTimes& times)
      : shape_(shape), times_(times) {
    for (const Actions& list : lists) stages_.push_back({.list = &list});
    for (int stage = 0; stage < shape.stages; ++stage) line_up(stage);
  }

  /// Runs all stages, in any order, since each waits for given handovers alone.
  Simulation run() {
    std::vector<std::vector<TimedAction>> ran(stages_.size());
    for (int s = 0; s < shape_.stages; ++s) ready_.push_back(s);
    for (; !ready_.empty(); ready_.pop_front())
      advance(ready_.front(), ran[size_t(ready_.front())]);
    return result(ran);
  }

 private:
  Stage& at(int stage) { return stages_[size_t(stage)]; }
  int channel(const Handover& t) const { return 2 * link_of(shape_, t) + t.kind; }
  double duration(int stage, const Action& a) const {
    const Durations& of = times_[size_t(shape_.virtual_stage(stage, a.chunk))];
    const double by_kind[] = {of.forward,        of.backward_input + of.backward_weight,
                              of.backward_input, of.backward_weight,
                              of.copy,           of.copy};
    return by_kind[a.kind];
  }

  void post(int stage, const Posted& p) {
    if (!stays(shape_, p.handover)) {
      at(stage).queues[channel(p.handover)].posted.push_back(p);
      while (exchange(channel(p.handover), stage)) {
      }
    } else if (p.sends) {
      at(stage).arrived.emplace(p.handover, p.at);
    }
  }

  /// Lists the receives of `stage` and posts the first of each channel.
  void line_up(int stage) {
    Stage& s = at(stage);
    for (const Action& a : *s.list) {
      if (auto input = received_by(shape_, stage, a)) s.coming[channel(*input)].push_back(*input);
      if (a.kind == Action::offload) s.copy[{a.chunk, a.micro}] = duration(stage, a);
    }
    for (auto& [channel, rest] : s.coming) post(stage, {rest.front(), false, 0});
  }

  /// Posts the next receive of a channel, whose `input` was taken at `time`.
  void take(int stage, const Handover& input, double time) {
    auto& rest = at(stage).coming[channel(input)];
    rest.pop_front();
    if (!rest.empty()) post(stage, {rest.front(), false, time});
  }

  /// Runs actions of `stage` until one has to wait.
  void advance(int stage, std::vector<TimedAction>& ran) {
    Stage& s = at(stage);
    for (; s.next < s.list->size(); ++s.next) {
      const Action& a = (*s.list)[s.next];
      double takes = duration(stage, a);
      if (copies(a.kind)) {
        ran.push_back(copied(s, stage, a, takes));
        continue;
      }
      double begin = s.clock;
      if (auto copy = s.back.find({a.chunk, a.micro}); copy != s.back.end())
        begin = std::max(begin, copy->second);
      if (auto input = received_by(shape_, stage, a)) {
        auto arrival = s.arrived.find(*input);
        if (arrival == s.arrived.end()) return;
        begin = std::max(begin, arrival->second);
        s.arrived.erase(arrival);
        take(stage, *input, begin);
      }
      s.clock = begin + takes;
      ran.push_back({stage, a, begin, s.clock});
      if (auto copy = s.copy.find({a.chunk, a.micro});
          a.kind == Action::forward && copy != s.copy.end())
        s.away[copy->first] = s.lane_out = std::max(s.clock, s.lane_out) + copy->second;
      if (auto output = sent_by(shape_, stage, a)) post(stage, {*output, true, s.clock});
    }
  }

  /// Passes an offload or a reload.
  TimedAction copied(Stage& s, int stage, const Action& a, double takes) const {
    if (a.kind == Action::reload) {
      double begin = std::max(s.clock, s.lane_back);
      s.back[{a.chunk, a.micro}] = s.lane_back = begin + takes;
      return {stage, a, begin, s.lane_back};
    }
    double end = s.away[{a.chunk, a.micro}];
    s.clock = std::max(s.clock, end);
    return {stage, a, end - takes, end};
  }

  /// Completes the first handover of a stage's channel, if both ends have come to it.
  bool exchange(int channel, int stage) {
    Queue& queue = at(stage).queues[channel];
    if (queue.posted.empty()) return false;
    const Posted& own = queue.posted.front();
    const Handover handover = own.handover;
    int receiver = shape_.stage_of(handover.to);
    Queue& peer = at(own.sends ? receiver : shape_.stage_of(handover.from)).queues[channel];
    if (peer.posted.empty()) return false;
    const Posted& other = peer.posted.front();
    if (other.sends == own.sends || other.handover != handover) return false;
    double start = std::max({own.at, other.at, queue.free_from, peer.free_from});
    double latency = times_[size_t(std::min(handover.from, handover.to))].latency;
    at(receiver).arrived.emplace(handover, start + latency);
    ready_.push_back(receiver);
    queue.free_from = peer.free_from = start;
    queue.posted.pop_front();
    peer.posted.pop_front();
    return true;
  }

  Simulation result(const std::vector<std::vector<TimedAction>>& ran) const {
    Simulation all;
    for (const auto& list : ran) {
      all.actions.insert(all.actions.end(), list.begin(), list.end());
      if (!list.empty()) all.time = std::max(all.time, list.back().end);
    }
    for (int stage = 0; stage < shape_.stages; ++stage) {
      double busy = 0;
      for (const TimedAction& a : ran[size_t(stage)])
        if (!copies(a.action.kind)) busy += a.end - a.begin;
      all.idle.push_back(all.time - busy);
      if (auto wait = wait_of(stage)) all.waits.push_back(*wait);
    }
    return all;
  }

  std::optional<Wait> wait_of(int stage) const {
    const Stage& s = stages_[size_t(stage)];
    auto wait = [&](const Handover& t, int end) {
      return Wait{stage, int(s.next), t, shape_.stage_of(end)};
    };
    if (s.next < s.list->size()) {
      Handover input = received_by(shape_, stage, (*s.list)[s.next]).value();
      return wait(input, input.from);
    }
    for (const auto& [channel, queue] : s.queues)
      if (!queue.posted.empty())
        return wait(queue.posted.front().handover, queue.posted.front().handover.to);
    return {};
  }

  const PipelineShape& shape_;
  const StageTimes& times_;
  std::vector<Stage> stages_;
  std::deque<int> ready_;  // stages that may have something to run
};

}  // namespace

StageTimes equal_stages(const PipelineShape& shape, const Durations& per_stage) {
  Durations each = per_stage;
  for (double* takes : {&each.forward, &each.backward_input, &each.backward_weight, &each.copy})
    *takes /= shape.chunks;
  return StageTimes(size_t(std::max(0, shape.virtual_stages())), each);
}

Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const Durations& durations) {
  return simulate(lists, shape, StageTimes(size_t(shape.virtual_stages()), durations));
}

Simulation simulate(const std::vector<Actions>& lists, const PipelineShape& shape,
                    const StageTimes& times) {
  check(std::ssize(lists) == shape.stages, "simulate: {} lists for {} stages; expected one each",
        lists.size(), shape.stages);
  check(std::ssize(times) == shape.virtual_stages(),
        "simulate: times of {} virtual stages; expected {}", times.size(), shape.virtual_stages());
  return Ring(lists, shape, times).run();
}

std::string describe_deadlock(const Simulation& simulation, const std::vector<Actions>& lists) {
  if (!simulation.deadlock()) return {};
  std::map<int, Wait> by_stage;
  for (const Wait& w : simulation.waits) by_stage.emplace(w.stage, w);
  // Follows the chain of waits until it closes, and leaves out the way into the circle.
  std::vector<Wait> chain;
  std::set<int> seen;
  int stage = simulation.waits.front().stage;
  for (; by_stage.count(stage) && seen.insert(stage).second; stage = chain.back().on)
    chain.push_back(by_stage.at(stage));
  auto first = std::find_if(chain.begin(), chain.end(), [&](auto& w) { return w.stage == stage; });
  if (first == chain.end()) first = chain.begin();

  std::vector<std::string> waits;
  for (auto w = first; w != chain.end(); ++w) {
    const Actions& list = lists[size_t(w->stage)];
    bool ended = size_t(w->position) == list.size();
    waits.push_back(fmt::format(
        "stage {}, {}, waits for stage {} to {} the {}", w->stage,
        ended ? "at the end of its list"
              : fmt::format("position {} ({})", w->position, str(list[size_t(w->position)])),
        w->on, ended ? "take" : "send", str(w->handover)));
  }
  if (!by_stage.count(stage)) waits.push_back(fmt::format("stage {} has ended", stage));
  return join(waits, "; ");
}

}  // namespace triax::parallel
