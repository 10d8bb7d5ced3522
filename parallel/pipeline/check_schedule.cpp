#include "triax/parallel/pipeline/check_schedule.h"

#include <algorithm>
#include <array>
#include <map>

#include "triax/core/check.h"
#include "triax/parallel/pipeline/simulate.h"

namespace triax::parallel {

using nn::Purpose;
namespace {

/// Follows one list, action by action.
class Follower {
 public:
  Follower(const PipelineShape& shape, int stage, Purpose purpose)
      : shape_(shape),
        stage_(stage),
        purpose_(purpose),
        places_(size_t(shape.chunks) * size_t(shape.micros), Places{-1, -1, -1, -1, -1, -1}) {}

  void take(const Action& a) {
    expect(a.chunk >= 0 && a.chunk < shape_.chunks && a.micro >= 0 && a.micro < shape_.micros, a,
           "does not exist; expected micro-batches 0 to {}, chunks 0 to {}", shape_.micros - 1,
           shape_.chunks - 1);
    expect(purpose_ == Purpose::training || a.kind == Action::forward, a,
           "in inference; expected forwards alone");
    check_order(a);
    places(a)[a.kind] = position_++;
  }

  void end() {
    for (int chunk = 0; chunk < shape_.chunks; ++chunk)
      for (int micro = 0; micro < shape_.micros; ++micro) {
        auto has = [&](Action::Kind kind) { return places({kind, chunk, micro})[kind] >= 0; };
        auto expect = [&](Action::Kind kind) {
          check_input(has(kind), Exit::config,
                      "schedule: stage {}, end of the list at position {}: no {}; expected it once",
                      stage_, position_, str(Action{kind, chunk, micro}));
        };
        expect(Action::forward);
        if (purpose_ == Purpose::inference) continue;
        expect(has(Action::backward_input) ? Action::backward_weight : Action::backward);
      }
  }

 private:
  /// The position of each kind of pass of one micro-batch through one chunk; -1: not yet.
  using Places = std::array<int, 6>;

  Places& places(const Action& a) {
    return places_[size_t(a.chunk) * size_t(shape_.micros) + size_t(a.micro)];
  }

  template <class... Args>
  void expect(bool ok, const Action& a, fmt::format_string<Args...> wrong, Args&&... args) const {
    if (ok) return;
    fail(Exit::config, "schedule: stage {}, position {}: {} {}", stage_, position_, str(a),
         fmt::format(wrong, std::forward<Args>(args)...));
  }

  void check_order(const Action& a) {
    const Places& at = places(a);
    expect(at[a.kind] < 0, a, "again; expected it once, at position {}", at[a.kind]);
    if (a.kind == Action::forward) return;
    if (a.kind == Action::offload || a.kind == Action::reload) return check_copy(a);
    expect(at[Action::offload] < 0 || at[Action::reload] >= 0, a,
           "while in host memory; expected it after its reload");
    auto other = a.kind == Action::backward ? Action::backward_input : Action::backward;
    expect(at[other] < 0, a,
           "after the {} at position {}; expected one whole backward, or its halves", name(other),
           at[other]);
    auto before = a.kind == Action::backward_weight ? Action::backward_input : Action::forward;
    expect(at[before] >= 0, a, "before its {}; expected it after", name(before));
  }

  void check_copy(const Action& a) {
    const Places& at = places(a);
    auto before = a.kind == Action::reload ? Action::offload : Action::forward;
    expect(at[before] >= 0, a, "before its {}; expected it after", name(before));
    for (auto back : {Action::backward, Action::backward_input})
      expect(at[back] < 0, a, "after its {} at position {}; expected it before", name(back),
             at[back]);
  }

  const PipelineShape shape_;
  const int stage_;
  const Purpose purpose_;
  std::vector<Places> places_;
  int position_ = 0;
};

/// One end of a handover: the position in its list at which a stage sends or receives.
struct End {
  Handover handover;
  int stage = 0, position = 0;
};

/// The sends and the receives on every channel, in the order of the lists.
struct Messages {
  std::map<std::pair<int, Handover::Kind>, std::vector<End>> sends, receives;

  Messages(const std::vector<Actions>& lists, const PipelineShape& shape) {
    for (int stage = 0; stage < shape.stages; ++stage) {
      const Actions& list = lists[size_t(stage)];
      for (int i = 0; i < int(list.size()); ++i) {
        const Action& a = list[size_t(i)];
        if (auto t = received_by(shape, stage, a); t && !stays(shape, *t))
          receives[{link_of(shape, *t), t->kind}].push_back({*t, stage, i});
        if (auto t = sent_by(shape, stage, a); t && !stays(shape, *t))
          sends[{link_of(shape, *t), t->kind}].push_back({*t, stage, i});
      }
    }
  }
};

/// Checks that both ends of every channel agree on the order. The lists are complete. Handovers
/// that stay on a stage are found by their names.
void check_matched(const std::vector<Actions>& lists, const PipelineShape& shape) {
  Messages traffic(lists, shape);
  for (const auto& [channel, receives] : traffic.receives) {
    const std::vector<End>& sends = traffic.sends.at(channel);
    for (size_t i = 0; i < receives.size(); ++i) {
      const End &in = receives[i], &out = sends[i];
      check_input(in.handover == out.handover, Exit::config,
                  "schedule: stage {}, position {}: {} takes handover {} from stage {} for the {}, "
                  "but it is the {}, sent at position {}; expected receives in the order of sends",
                  in.stage, in.position, str(lists[size_t(in.stage)][size_t(in.position)]), i,
                  out.stage, str(in.handover), str(out.handover), out.position);
    }
  }
}

}  // namespace

Kept most_kept(const Actions& list, const std::vector<int>& layers) {
  Kept now, most;
  for (const Action& a : list) {
    int n = layers.empty() ? 1 : layers[size_t(a.chunk)];
    bool ends_input = a.kind == Action::backward || a.kind == Action::backward_input;
    bool ends_weight = a.kind == Action::backward || a.kind == Action::backward_weight;
    if (a.kind == Action::forward || a.kind == Action::reload) now.live += n, now.held += n;
    if (a.kind == Action::offload) now.live -= n, now.held -= n;
    if (a.kind == Action::backward_input) now.waiting += n;
    most = {std::max(most.live, now.live), std::max(most.held, now.held),
            std::max(most.waiting, now.waiting)};
    if (ends_input) now.live -= n;
    if (ends_weight) now.held -= n;
    if (a.kind == Action::backward_weight) now.waiting -= n;
  }
  return most;
}

std::vector<int> check_schedule(const Schedule& schedule, const PipelineShape& shape,
                                Purpose purpose) {
  std::vector<Actions> lists = lists_of(schedule, shape);
  for (int stage = 0; stage < shape.stages; ++stage) {
    Follower follower(shape, stage, purpose);
    for (const Action& a : lists[size_t(stage)]) follower.take(a);
    follower.end();
  }
  check_matched(lists, shape);
  Simulation simulation = simulate(lists, shape);
  check_input(!simulation.deadlock(), Exit::config,
              "schedule: deadlock: {}; expected that some stage can always go on",
              describe_deadlock(simulation, lists));
  return transformed(lists, [&](const Actions& list) {
    return purpose == Purpose::training ? most_kept(list).held : int(!list.empty());
  });
}

}  // namespace triax::parallel
