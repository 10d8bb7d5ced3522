#include "triax/parallel/pipeline/schedule.h"

#include <algorithm>
#include <iterator>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax::parallel {
namespace {

void check_shape(const char* who, const PipelineShape& s) {
  check_input(s.stages > 0 && s.chunks > 0 && s.micros > 0, Exit::config,
              "{}: {} stages, {} chunks a stage, {} micro-batches; expected at least 1 each", who,
              s.stages, s.chunks, s.micros);
}

void check_one_chunk(const char* who, const PipelineShape& s, const char* instead) {
  check_input(s.chunks == 1, Exit::config, "{}: {} chunks a stage; expected 1, or --schedule {}",
              who, s.chunks, instead);
}

/// Returns the number of groups in which micro-batches go round the ring. A group smaller than the
/// ring would be back before the others have passed, and can deadlock; the rest enlarges groups.
int group_count(const PipelineShape& s) { return std::max(1, s.micros / s.stages); }

/// Returns every chunk and micro-batch once, in the order in which the groups pass a stage.
Actions all_of(const PipelineShape& s, Action::Kind kind) {
  Actions list;
  auto groups = int64_t{group_count(s)};
  auto start = [&](int64_t group) { return int(group * s.micros / groups); };
  for (int64_t g = 0; g < groups; ++g)
    for (int c = 0; c < s.chunks; ++c)
      for (int m = start(g); m < start(g + 1); ++m)
        list.push_back({kind, kind == Action::forward ? c : s.chunks - 1 - c, m});
  return list;
}

/// Returns `ahead` forwards, then a forward and a backward in turn, then the other backwards.
Actions alternate(const PipelineShape& s, int ahead) {
  Actions forwards = all_of(s, Action::forward), backwards = all_of(s, Action::backward), list;
  auto next = forwards.begin() + std::min<ptrdiff_t>(ahead, std::ssize(forwards));
  list.assign(forwards.begin(), next);
  for (const Action& b : backwards) {
    if (next != forwards.end()) list.push_back(*next++);
    list.push_back(b);
  }
  return list;
}

/// Returns what `action` hands to a neighbour (`sends`) or receives from one; none at the ends.
std::optional<Handover> handover(const PipelineShape& s, int stage, const Action& a, bool sends) {
  if (a.kind >= Action::backward_weight) return {};
  bool up = a.kind == Action::forward;
  int here = s.virtual_stage(stage, a.chunk), there = up == sends ? here + 1 : here - 1;
  if (there < 0 || there >= s.virtual_stages()) return {};
  return Handover{.kind = up ? Handover::activation : Handover::gradient,
                  .from = sends ? here : there,
                  .to = sends ? there : here,
                  .micro = a.micro};
}

struct Named {
  const char* name;
  Actions (*make)(const PipelineShape&, int);
  int chunks = 1;
  Placement placement = Placement::ring;
  std::vector<Actions> (*all)(const PipelineShape&) = nullptr;  ///< instead of `make`
};
constexpr Named named_schedules[] = {{"gpipe", gpipe},
                                     {"1f1b", one_f_one_b},
                                     {"interleaved", interleaved, 2},
                                     {"zb-h1", zb_h1},
                                     {"zb-interleaved", zb_interleaved, 2},
                                     {"zb-2p", zb_2p},
                                     {"1f1b-v", nullptr, 2, Placement::v, one_f_one_b_v},
                                     {"v-min", nullptr, 2, Placement::v, v_min},
                                     {"v-half", nullptr, 2, Placement::v, v_half},
                                     {"zb-v", zb_v, 2, Placement::v},
                                     {"dualpipev", dualpipev, 2, Placement::v}};

}  // namespace

void check_arguments(const char* who, const PipelineShape& s, int stage) {
  check_shape(who, s);
  check(stage >= 0 && stage < s.stages, "{}: stage {}; expected 0 to {}", who, stage, s.stages - 1);
}

const char* name(Action::Kind kind) {
  constexpr const char* names[] = {"forward",         "backward", "backward_input",
                                   "backward_weight", "offload",  "reload"};
  return names[kind];
}

const char* name(Placement placement) { return placement == Placement::v ? "v" : "ring"; }

std::string label(const Action& a, int chunks) {
  std::string text = fmt::format("{}{}", "FBIWOR"[a.kind], a.micro);
  if (chunks == 1) return text;
  return text + (a.chunk < 26 ? std::string(1, char('a' + a.chunk)) : fmt::format(".{}", a.chunk));
}

std::string str(const Action& a) {
  return fmt::format("{} of micro-batch {}, chunk {}", name(a.kind), a.micro, a.chunk);
}

std::string str(const Handover& t) {
  return fmt::format("{} of micro-batch {} from virtual stage {} to {}",
                     t.kind == Handover::activation ? "activation" : "gradient", t.micro, t.from,
                     t.to);
}

Actions gpipe(const PipelineShape& s, int stage) {
  check_arguments("schedule gpipe", s, stage);
  Actions list;
  for (int c = 0; c < s.chunks; ++c)
    for (int m = 0; m < s.micros; ++m) list.push_back({Action::forward, c, m});
  for (int c = s.chunks - 1; c >= 0; --c)
    for (int m = 0; m < s.micros; ++m) list.push_back({Action::backward, c, m});
  return list;
}

Actions one_f_one_b(const PipelineShape& s, int stage) {
  check_arguments("schedule 1f1b", s, stage);
  check_one_chunk("schedule 1f1b", s, "interleaved");
  return alternate(s, s.stages - stage - 1);
}

Actions interleaved(const PipelineShape& s, int stage) {
  check_arguments("schedule interleaved", s, stage);
  int ahead = s.stages - stage - 1;  // stages that a forward has yet to pass before it turns
  if (s.chunks == 1) return alternate(s, ahead);
  int groups = group_count(s), largest = (s.micros + groups - 1) / groups;
  return alternate(s, 2 * ahead + (s.chunks - 1) * largest);
}

Actions split_backward(const Actions& whole, int delay) {
  check(delay >= 0, "split_backward: delay {}; expected at least 0", delay);
  Actions list, weights;
  ptrdiff_t done = 0;
  for (const Action& a : whole) {
    if (a.kind != Action::backward) {
      list.push_back(a);
      continue;
    }
    list.push_back({Action::backward_input, a.chunk, a.micro});
    weights.push_back({Action::backward_weight, a.chunk, a.micro});
    if (std::ssize(weights) - done > delay) list.push_back(weights[size_t(done++)]);
  }
  list.insert(list.end(), weights.begin() + done, weights.end());
  return list;
}

Actions zb_h1(const PipelineShape& s, int stage) {
  check_arguments("schedule zb-h1", s, stage);
  check_one_chunk("schedule zb-h1", s, "zb-interleaved");
  return split_backward(one_f_one_b(s, stage), stage);
}

Actions zb_interleaved(const PipelineShape& s, int stage) {
  check_arguments("schedule zb-interleaved", s, stage);
  return split_backward(interleaved(s, stage), stage);
}

Actions zb_2p(const PipelineShape& s, int stage) {
  check_arguments("schedule zb-2p", s, stage);
  check_one_chunk("schedule zb-2p", s, "zb-v");
  // The last input passes follow each other without a wait if 2 to 4 weights are owed for each
  // stage before this one: more, the less time a weight takes. There are no more than
  // micro-batches.
  int delay = int(int64_t{stage} * std::min(4 * int64_t{s.stages}, int64_t{s.micros}) / s.stages);
  return split_backward(alternate(s, 2 * (s.stages - stage - 1)), delay);
}

Actions forward_only(const PipelineShape& s, int stage) {
  check_arguments("schedule forward-only", s, stage);
  return all_of(s, Action::forward);
}

std::vector<Actions> lists_of(const Schedule& schedule, const PipelineShape& s) {
  check_input(bool(schedule.make), Exit::config,
              "schedule: an empty function; expected one that makes lists");
  check_shape("schedule", s);
  if (schedule.all) return schedule.all(s);
  std::vector<Actions> lists;
  for (int stage = 0; stage < s.stages; ++stage) lists.push_back(schedule(s, stage));
  return lists;
}

std::vector<std::string> schedule_names() {
  return transformed(named_schedules, [](const Named& n) { return std::string(n.name); });
}

Schedule schedule_named(const std::string& name) {
  for (const Named& n : named_schedules) {
    if (n.name != name) continue;
    if (!n.all) return {n.make, n.placement, n.chunks};
    auto make = [n](const PipelineShape& s, int stage) {
      check_arguments(fmt::format("schedule {}", n.name).c_str(), s, stage);
      return n.all(s)[size_t(stage)];
    };
    Schedule schedule(make, n.placement, n.chunks);
    schedule.all = n.all;
    return schedule;
  }
  fail(Exit::config, "schedule: unknown name `{}`; expected one of {}", printable(name),
       join(schedule_names(), ", "));
}

std::optional<Handover> received_by(const PipelineShape& s, int stage, const Action& action) {
  return handover(s, stage, action, false);
}
std::optional<Handover> sent_by(const PipelineShape& s, int stage, const Action& action) {
  return handover(s, stage, action, true);
}

bool stays(const PipelineShape& s, const Handover& t) {
  return s.stage_of(t.from) == s.stage_of(t.to);
}

int link_of(const PipelineShape& s, const Handover& t) {
  int cut = std::min(t.from, t.to);
  return s.placement == Placement::v ? cut : cut % s.stages;
}

}  // namespace triax::parallel
