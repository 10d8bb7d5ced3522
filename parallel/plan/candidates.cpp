#include "triax/parallel/plan/candidates.h"

#include <algorithm>
#include <limits>
#include <set>

#include "triax/core/check.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

/// Returns the sizes that an axis may have: the given one, else the divisors of `ranks`.
std::vector<int> choices(int given, int64_t ranks) {
  if (given > 0) return {given};
  std::vector<int> all;
  for (int n = 1; n <= ranks; ++n)
    if (ranks % n == 0) all.push_back(n);
  return all;
}

constexpr const char* one_stage = "1f1b";  // where all schedules are alike

/// True if the optimizer keeps AdamW's moments, and nothing else.
bool known_state(const StepOptions& o) {
  return !o.optimizer && o.algorithm == Algorithm::adamw && o.average == 0 &&
         o.offload == Offloaded::nothing;
}

/// Returns the bytes of weights, gradients and known optimizer state of so many parameters, as
/// sharded by ZeRO.
double state_bytes(const StepOptions& o, const Elements& parameters) {
  if (o.offload == Offloaded::parameters) return 0;
  auto trained = double(parameters.trained), frozen = double(parameters.all) - trained;
  auto held = [&](Zero from) { return o.zero >= from ? shared_out(o.mesh, parameters) : trained; };
  double weights = double(size_of(o.dtype));
  double bytes = weights * held(Zero::parameters) + 4 * held(Zero::gradients);
  if (known_state(o)) bytes += (o.dtype == f32 ? 8 : 12) * held(Zero::optimizer);
  return bytes + weights * frozen / (o.zero == Zero::parameters ? o.mesh.data() : 1);
}

class Enumeration {
 public:
  Enumeration(const PlanOptions& o, const Hardware& h, StepTimes& times)
      : o_(o), hardware_(h), times_(times) {}

  Candidates run() {
    const MeshShape& m = o_.train.step.mesh;
    int64_t ranks = o_.ranks > 0 ? o_.ranks : int64_t(m.least_size());
    for (int tp : choices(m.tp, ranks))
      for (int pp : choices(m.pp, ranks))
        for (int cp : choices(m.cp, ranks))
          for (int ep : choices(m.ep, ranks)) {
            MeshShape mesh{.pp = pp, .tp = tp, .cp = cp, .ep = ep, .more = m.more};
            int64_t others = mesh.size();
            if (m.dp > 0 ? m.dp * others != ranks : ranks % others != 0) continue;
            if (m.tp == 0 && tp > 2 * hardware_.per_node) continue;
            mesh.dp = int(ranks / others);
            try_mesh(mesh);
          }
    check_input(
        !found_.all.empty(), Exit::config, "{}",
        !found_.refusals.empty()
            ? found_.refusals.front()
            : fmt::format("mesh: {} ranks with {}; expected sizes that multiply to {}\n  Change "
                          "--ranks, or leave one of --dp, --pp, --tp open.",
                          ranks, given_axes(m), ranks));
    std::ranges::stable_sort(found_.all, {}, [](auto& c) { return c.time.total(); });
    return std::move(found_);
  }

 private:
  bool is_given(const char* name) const { return std::ranges::count(o_.given, name) > 0; }

  /// Returns the refusal of `f`, or "".
  template <class F> static std::string refusal(const F& f) try {
    f();
    return "";
  } catch (const Error& e) {
    if (e.code() != Exit::config) throw;
    return e.what();
  }

  /// Remembers a refusal, once.
  void remember(const std::string& refusal) {
    if (!refusal.empty() && std::ranges::count(found_.refusals, refusal) == 0)
      found_.refusals.push_back(refusal);
  }

  void try_mesh(const MeshShape& mesh) {
    const StepOptions& s = o_.train.step;
    Candidate c{.mesh = mesh, .zero = stages_of_zero(mesh).front()};
    for (c.micro_batch = s.micro_batch > 0 ? s.micro_batch : 1;;) {
      for (bool sequence : {false, true}) {
        bool open = !is_given("sequence-parallel") && !s.sequence_parallel;
        if (sequence ? mesh.tp == 1 || (!open && !s.sequence_parallel)
                     : mesh.tp > 1 && s.sequence_parallel)
          continue;
        c.sequence_parallel = sequence;
        remember(refusal([&] { try_recompute(c); }));
      }
      progress_.say(fmt::format("plan: {} ways timed", found_.all.size()));
      int64_t whole = s.global_batch / mesh.replicas(), next = 2 * c.micro_batch;
      if (whole % next != 0) next = whole;
      bool none = next <= c.micro_batch || s.global_batch % (next * mesh.replicas()) != 0;
      if (s.micro_batch > 0 || next > 64 || none) break;
      c.micro_batch = next;
    }
  }

  /// Returns the given ZeRO stage, else all that have something to shard.
  std::vector<Zero> stages_of_zero(const MeshShape& mesh) const {
    if (is_given("zero") || o_.train.step.zero != Zero::off) return {o_.train.step.zero};
    if (o_.train.step.offload == Offloaded::parameters) return {Zero::parameters};  // needs it
    if (mesh.data() == 1) return {Zero::off};
    return {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters};
  }

  void try_recompute(Candidate c) {
    const StepOptions& s = o_.train.step;
    bool fixed = is_given("recompute") || s.recompute != Recompute::off;
    for (auto r :
         {Recompute::off, Recompute::selective, Recompute::block, Recompute::block_split}) {
      if (fixed ? r != s.recompute : r == Recompute::block_split) continue;
      bool needless = r == Recompute::selective && !selects(c);
      if (needless && !fixed) continue;
      c.recompute = r;
      for (const auto& [schedule, chunks] : schedules_for(c)) {
        c.schedule = schedule, c.chunks = chunks;
        try_zero(c);
      }
    }
  }

  /// True if layers of the model have a `selective` form to recompute.
  bool selects(const Candidate& c) {
    auto& layers = times_.facts(c.options(o_.train).step).layers();
    return std::ranges::any_of(layers, &LayerFacts::selective);
  }

  /// Returns the chunks to try: where there is a choice, not too many.
  std::vector<int> chunks_for(const MeshShape& mesh, const std::string& schedule) const {
    const StepOptions& s = o_.train.step;
    if (s.chunks > 0) return {s.chunks};
    auto known = s.schedules.find(schedule);
    if (known == s.schedules.end()) return {1};  // refused
    int own = known->second.chunks;
    if (mesh.pp == 1 || is_schedule_file(schedule)) return {own};
    std::set<int> all{1, 2, 4, own};
    return {all.begin(), all.end()};
  }

  /// Returns the schedules that fit, without those that another beats.
  std::vector<std::pair<std::string, int>> schedules_for(Candidate c) {
    const StepOptions& s = o_.train.step;
    struct Way {
      std::string schedule;
      int chunks;
      double idle;
      Kept most;
    };
    std::vector<Way> ways;
    std::string first;  // the first refusal
    std::vector<std::string> names{s.schedule};
    if (s.schedule.empty())
      names = c.mesh.pp > 1 ? names_of(s.schedules) : std::vector<std::string>{one_stage};
    for (auto& name : names) {
      for (int chunks : chunks_for(c.mesh, name)) {
        c.schedule = name, c.chunks = chunks;
        std::string no = refusal([&] {
          StepOptions o = resolved(c).step;
          const Bubble& b = times_.bubble(o);
          Way& way = ways.emplace_back(Way{name, c.chunks, b.idle, {}});
          for (auto count : {&Kept::live, &Kept::held, &Kept::waiting})
            way.most.*count = std::ranges::max(b.kept, {}, count).*count;
        });
        if (first.empty()) first = no;
      }
    }
    if (ways.empty()) remember(first);
    std::vector<std::pair<std::string, int>> left;
    for (auto& w : ways) {
      bool beaten = std::ranges::any_of(ways, [&](auto& other) {
        bool as_good = other.chunks == w.chunks && other.idle <= w.idle + 1e-9 &&
                       other.most.live <= w.most.live && other.most.held <= w.most.held &&
                       other.most.waiting <= w.most.waiting;
        bool better = other.idle < w.idle - 1e-9 || !(other.most == w.most);
        return as_good && (better || (&other < &w && s.schedule.empty()));
      });
      if (!beaten) left.push_back({w.schedule, w.chunks});
    }
    return left;
  }

  TrainOptions resolved(const Candidate& c) const {
    TrainOptions t = c.options(o_.train);
    t.launch.device = hardware_.device;  // some settings are refused on it
    resolve(t, c.mesh.size());
    StepOptions& s = t.step;
    if (s.schedules.contains(s.schedule)) times_.placement(s);  // before long lists of many stages
    int64_t all = s.global_batch, unit = s.micro_batch * s.mesh.replicas();
    // Lists of many micro-batches take long to make, and are refused if that of one is.
    if (all % unit == 0 && is_built_in(s)) s.global_batch = unit;
    check_options(t, c.mesh.size());
    s.global_batch = all;
    return t;
  }

  void try_zero(Candidate c) {
    for (Zero zero : stages_of_zero(c.mesh)) {
      c.zero = zero;
      remember(refusal([&] {
        StepOptions step = resolved(c).step;
        c.time = times_.estimate(step);
        c.state.clear();
        for (auto& stage : times_.parameters(step)) c.state.push_back(state_bytes(step, stage));
        c.known_state = known_state(step);
        const Bubble& b = times_.bubble(step);
        c.kept = b.kept, c.placement = step.pipeline().placement;
        c.least = least(step, c.state);
        found_.all.push_back(c);
      }));
    }
  }

  /// Returns the bytes of the fullest stage: state, and inputs of blocks that forward always keeps.
  double least(const StepOptions& o, const std::vector<double>& state) {
    auto& all_kept = times_.bubble(o).kept;
    auto& counts = times_.placement(o);
    auto& layers = times_.facts(o).layers();
    double bytes = std::numeric_limits<double>::infinity(), most = 0;
    for (size_t i = 0; i + 1 < layers.size(); ++i) {  // the smallest output of a layer
      const Boundary& out = layers[i].out;
      bytes = std::min(bytes, double(out.shape.numel()) * double(size_of(out.dtype)));
    }
    if (layers.size() < 2) bytes = 0;
    if (o.recompute == Recompute::block_split) bytes /= o.mesh.tp;
    for (size_t s = 0; s < state.size(); ++s) {
      double kept = 0;
      if (o.chunks == 1)
        kept = double(all_kept[s].live * std::max<int64_t>(0, counts[s] - 2)) * bytes;
      most = std::max(most, state[s] + kept);
    }
    return most;
  }

  const PlanOptions& o_;
  const Hardware& hardware_;
  StepTimes& times_;
  Candidates found_;
  SearchProgress progress_;
};

}  // namespace

TrainOptions Candidate::options(const TrainOptions& base) const {
  TrainOptions t = base;
  StepOptions& s = t.step;
  s.mesh = mesh, s.zero = zero, s.sequence_parallel = sequence_parallel;
  s.schedule = schedule, s.chunks = chunks, s.micro_batch = micro_batch, s.recompute = recompute;
  return t;
}

bool simpler(const Candidate& a, const Candidate& b) {
  auto key = [](const Candidate& c) {
    auto axes =
        std::ranges::count_if(c.mesh.axes(), [](const Axis& axis) { return axis.size > 1; });
    bool plain = c.schedule == "1f1b" || c.schedule == "gpipe";
    return std::tuple(axes, c.zero, !plain, c.recompute, c.sequence_parallel, c.chunks);
  };
  return key(a) < key(b);
}

Candidates candidates(const PlanOptions& o, const Hardware& h, StepTimes& times) {
  return Enumeration(o, h, times).run();
}

double least_beside(const Candidate& c, const Rehearsed& other) {
  const Candidate& o = other.candidate;
  if (!(c.mesh == o.mesh) || c.sequence_parallel != o.sequence_parallel) return 0;
  if (c.placement != o.placement) return 0;  // a stage has other layers
  if (c.recompute > o.recompute) return 0;
  if (c.zero != o.zero && o.zero >= Zero::gradients) return 0;  // the others lack its buffers
  if (c.zero != o.zero && !c.known_state) return 0;  // it is among the activations, sharded
  double share = std::min(1., double(c.micro_batch) / double(o.micro_batch)), most = 0;
  if (c.chunks != o.chunks) share *= 0.6;
  for (auto& [stage, peak] : other.peaks) {
    auto s = size_t(stage);
    double activations = std::max(0., peak - o.state[s]);
    double fewer = 1;
    for (auto count : {&Kept::live, &Kept::held, &Kept::waiting})
      if (int there = o.kept[s].*count; there > 0)
        fewer = std::min(fewer, double(c.kept[s].*count) / c.chunks / (double(there) / o.chunks));
    most = std::max(most, c.state[s] + activations * share * fewer);
  }
  constexpr double safe = 0.85;  // part of what is counted as activations does not scale
  return most * safe;
}

}  // namespace triax::parallel
