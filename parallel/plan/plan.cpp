#include "triax/parallel/plan/plan.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "triax/core/check.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/plan/candidates.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/options/groups.h"

namespace triax::parallel {
namespace {

/// The number of candidates up to which all are rehearsed.
constexpr size_t few = 64;

/// Returns the kept layers per stage, but for the model's first and last, which keep little.
std::vector<Kept> kept_layers(StepTimes& times, const StepOptions& o) {
  auto& counts = times.placement(o);
  PipelineShape shape = o.pipeline();
  if (is_built_in(o)) shape.micros = std::min(shape.micros, 8 * shape.stages);  // it is full then
  auto& lists = times.lists(o, shape.micros);
  std::vector<Kept> all;
  for (int s = 0; s < shape.stages; ++s) {
    std::vector<int> layers;
    for (int c = 0; c < shape.chunks; ++c) {
      int v = shape.virtual_stage(s, c);
      layers.push_back(int(counts[size_t(v)]) - (v == 0) - (v == shape.virtual_stages() - 1));
    }
    all.push_back(most_kept(lists[size_t(s)], layers));
  }
  return all;
}

/// Returns the stages that keep most layers and in which most wait, the first, and the last.
std::vector<int> likely_fullest(const std::vector<Kept>& kept) {
  auto most = [&](auto key) { return int(std::ranges::max_element(kept, {}, key) - kept.begin()); };
  std::vector<int> all;
  for (int stage :
       {most([](auto& k) { return std::tuple(k.held, k.waiting); }),
        most([](auto& k) { return std::tuple(k.waiting, k.held); }), 0, int(kept.size()) - 1})
    if (std::ranges::count(all, stage) == 0) all.push_back(stage);
  return all;
}

/// Returns a stage that may hold more than those that were rehearsed, if a layer keeps as much as
/// in one of these; -1: none.
int fuller(const Rehearsed& r, const std::vector<Kept>& kept) {
  const std::vector<double>& state = r.candidate.state;
  double layer = 0;
  for (auto [s, peak] : r.peaks)
    layer = std::max(layer, (peak - state[size_t(s)]) / std::max(1, kept[size_t(s)].held));
  double most = std::ranges::max(r.peaks, {}, [](auto& p) { return p.second; }).second;
  int found = -1;
  for (size_t s = 0; s < kept.size(); ++s) {
    double bytes = state[s] + layer * kept[s].held;
    bool known = std::ranges::any_of(r.peaks, [&](auto& p) { return p.first == int(s); });
    if (!known && bytes > most) most = bytes, found = int(s);
  }
  return found;
}

/// Describes a model's layers, most of which are alike: their names differ in a number alone.
std::string describe(const nn::Layers& layers) {
  std::map<std::string, int64_t> counts;
  for (auto& layer : layers)
    ++counts[layer.name.substr(0, layer.name.find_last_not_of("0123456789") + 1)];
  auto [name, count] = *std::ranges::max_element(counts, {}, [](auto& c) { return c.second; });
  int64_t all = std::ssize(layers), others = all - count;
  if (count < 2 || name.empty()) return counted(all, "layer");
  std::string rest = others > 0 ? " and " + counted(others, "other layer") : "";
  return fmt::format("{} {}s{}", count, name, rest);
}

class Search {
 public:
  Search(const Task& task, const PlanOptions& o, Plans& found)
      : task_(task),
        o_(o),
        found_(found),
        times_(task, found.hardware),
        ways_(candidates(o, found.hardware, times_)) {}

  void run() {
    found_.candidates = ways_.all.size();
    found_.refusals = ways_.refusals;
    bool all = ways_.all.size() <= few;
    one_mesh_ =
        std::ranges::all_of(ways_.all, [&](auto& c) { return c.mesh == ways_.all[0].mesh; });
    // Fastest first. An estimate is mostly too short, so what is fastest by it is timed then.
    std::priority_queue<Timed, std::vector<Timed>, std::greater<>> fastest;
    for (size_t i = 0; i < ways_.all.size(); ++i) fastest.emplace(ways_.all[i].time.total(), i);
    while (!fastest.empty() && (all || fitting_.size() < size_t(o_.top))) {
      auto [seconds, i] = fastest.top();
      fastest.pop();
      Candidate& c = ways_.all[i];
      if (!all && (fitting_.contains(group(c)) || surely_over(c))) continue;
      if (!c.timed) fastest.emplace(time(c), i);
      else rehearse(c);
    }
    if (fitting_.empty()) {  // shows what is nearest to it
      found_.all.clear();    // rehearsed only until they were over
      enough_ = 0;
      std::ranges::stable_sort(ways_.all, {}, [](const Candidate& c) {
        return std::tuple(c.micro_batch, -int(c.recompute), c.least);
      });
      for (size_t i = 0; i < std::min(ways_.all.size(), size_t(o_.top)); ++i) {
        (void)time(ways_.all[i]);
        rehearse(ways_.all[i]);
      }
    }
    check_input(!found_.all.empty(), Exit::config, "{}", found_.refusals.back());
    const Hardware& h = found_.hardware;
    std::ranges::stable_sort(found_.all, [&](const Plan& a, const Plan& b) {
      bool a_fits = found_.fits(a), b_fits = found_.fits(b);
      if (a_fits != b_fits) return a_fits;
      return a_fits ? a.time.total() < b.time.total() : a.need(h) < b.need(h);
    });
    if (!fitting_.empty()) prefer_simple();
  }

 private:
  /// Moves the simplest plan that is nearly as fast as the fastest to the front.
  void prefer_simple() {
    std::vector<Plan>& all = found_.all;
    double enough = Plans::tie * all.front().time.total();
    std::vector<Candidate*> near;
    for (Candidate& c : ways_.all)
      if (c.time.total() <= enough) near.push_back(&c);
    std::ranges::stable_sort(
        near, simpler, [](auto* c) -> auto& { return *c; });
    for (Candidate* c : near) {
      if (surely_over(*c) || time(*c) > enough) continue;
      auto find = [&] { return std::ranges::find(all, size_t(c - ways_.all.data()), &Plan::way); };
      if (find() == all.end()) rehearse(*c);
      auto at = find();
      if (at != all.end() && found_.fits(*at)) return void(std::rotate(all.begin(), at, at + 1));
    }
  }

  using Timed = std::pair<double, size_t>;  // seconds, candidate
  /// Returns the time of a candidate, which takes the place of its estimate.
  double time(Candidate& c) {
    if (!std::exchange(c.timed, true)) {
      TrainOptions o = c.options(o_.train);
      resolve(o, c.mesh.size());
      c.time = times_(o.step);
    }
    return c.time.total();
  }

  using Group = std::pair<MeshShape, size_t>;
  /// Returns the group of a candidate: its mesh, or, where only one mesh is asked for, itself.
  Group group(const Candidate& c) const {
    return {c.mesh, one_mesh_ ? size_t(&c - ways_.all.data()) : 0};
  }

  bool surely_over(const Candidate& c) const {
    return c.least > found_.budget || std::ranges::any_of(rehearsed_, [&](const Rehearsed& r) {
             return least_beside(c, r) > found_.budget;
           });
  }

  void rehearse(const Candidate& c) try {
    Plan p{c.options(o_.train), {}, c.time, 0, size_t(&c - ways_.all.data())};
    const StepOptions& s = p.options.step;
    resolve(p.options, s.mesh.size());
    Subject subject{task_.build, like(s.micro_batch),
                    times_.facts(s).with_replicas(s.mesh.replicas())};
    Rehearsed& r = rehearsed_.emplace_back(Rehearsed{c});
    auto add = [&](const std::vector<int>& stages) {
      StagesOn of{found_.hardware.kind(), stages, enough_};
      size_t i = 0;
      for (Demand& d : foresee_peaks(subject, s, of)) {
        r.peaks.push_back({stages[i++], double(d.peak)});
        p.stages.push_back(std::move(d));
      }
    };
    auto kept = kept_layers(times_, s);
    add(likely_fullest(kept));
    bool open = enough_ == 0 || found_.fits(p);
    if (int more = open ? fuller(r, kept) : -1; more >= 0) add({more});
    double peak = found_.hardware.peak(s.dtype) * s.mesh.size();
    p.mfu = times_.model_flop(s) / (peak * p.time.total());
    if (found_.fits(p)) fitting_.insert(group(c));
    found_.all.push_back(std::move(p));
    progress_.say(fmt::format("plan: memory of {} ways rehearsed, something fits of {} meshes",
                              found_.all.size(), fitting_.size()));
  } catch (const Error& e) {  // what layers refuse only when they see a batch
    if (e.code() != Exit::config) throw;
    if (std::ranges::count(found_.refusals, e.what()) == 0) found_.refusals.push_back(e.what());
  }

  const nn::Batch& like(int64_t samples) {
    auto [found, added] = likes_.try_emplace(samples);
    if (added) found->second = shaped_like(task_, samples);
    return found->second;
  }

  const Task& task_;
  const PlanOptions& o_;
  Plans& found_;
  StepTimes times_;
  Candidates ways_;
  std::map<int64_t, nn::Batch> likes_;  ///< by number of samples
  std::vector<Rehearsed> rehearsed_;
  std::set<Group> fitting_;
  bool one_mesh_ = false;          ///< only one mesh is asked for
  double enough_ = found_.budget;  ///< a stage over it ends a rehearsal; 0: none does
  SearchProgress progress_;
};

}  // namespace

const Demand& Plan::fullest() const { return *std::ranges::max_element(stages, {}, &Demand::peak); }

double Plan::need(const Hardware& h) const {
  bool beside = h.on_host() && options.step.offload_dir.empty();
  double most = 0;
  for (const Demand& d : stages)
    most = std::max(most, double(d.peak + (beside ? d.peaks[memory::offloaded] : 0)));
  return most;
}

void leave_open(StepOptions& o, const std::vector<std::string>& fixed) {
  leave_open(o, [&](auto& name) { return std::ranges::count(fixed, name) == 0; });
}

void leave_open(StepOptions& o, const std::function<bool(const std::string& name)>& opens) {
  auto open = [&](const char* name, auto& field, auto value) {
    if (opens(name)) field = value;
  };
  open("dp", o.mesh.dp, 0), open("pp", o.mesh.pp, 0), open("tp", o.mesh.tp, 0);
  open("cp", o.mesh.cp, 0), open("ep", o.mesh.ep, 0);
  open("micro-batch", o.micro_batch, 0), open("schedule", o.schedule, ""),
      open("chunks", o.chunks, 0);
  open("zero", o.zero, Zero::off), open("recompute", o.recompute, Recompute::off);
  open("sequence-parallel", o.sequence_parallel, false);
}

Plans plans(const Task& task, const PlanOptions& given) {
  check_task(task);
  PlanOptions o = given;
  Plans found{.hardware = o.measured ? *o.measured : hardware_named(o.hardware)};
  found.budget = o.memory.empty() ? found.hardware.room() : bytes_of(o.memory);
  StepOptions& s = o.train.step;
  const MeshShape& m = s.mesh;
  if (is_schedule_file(s.schedule)) {  // read once, and not for each candidate
    ScheduleFile file = read_schedule(s.schedule);
    if (s.mesh.pp == 0) s.mesh.pp = file.shape.stages;
    s.schedules[s.schedule] = schedule_from(file, s.schedule);
  }
  constexpr int64_t limit = 65536;
  if (o.ranks == 0) o.ranks = int64_t(std::min(m.least_size(), 1e9));
  check_input(o.ranks <= limit && m.least_size() <= limit, Exit::config,
              "plan: {} on {} ranks; expected {} ranks at most", given_axes(m), o.ranks, limit);
  if (s.global_batch == 0) s.global_batch = std::max<int64_t>(1, s.micro_batch) * o.ranks;
  MetaComm alone(1, 0);
  auto model = model_of(task.build, TensorParallel(alone));
  found.layers = describe(model->layers());
  model->bind(0);
  apply_groups(*model, s.groups);
  for (auto* p : model->parameters()) found.parameters.add(*p, p->full.numel());
  if (s.mesh.ep == 0 && found.parameters.experts == 0) s.mesh.ep = 1;  // it would be as dp
  Search(task, o, found).run();
  // Where the hardware is a CPU, offloaded state would stay in the same memory.
  bool moves = !found.hardware.on_host() && s.offload < Offloaded::parameters &&
               std::ranges::count(o.given, "offload") == 0;
  if (moves && !found.fits(found.all.front())) try {
      PlanOptions more = given;
      more.train.step.offload = Offloaded(int(s.offload) + 1);
      if (Plans other = plans(task, more); other.fits(other.all.front())) return other;
    } catch (const Error& e) {  // it does not go with another option
      if (e.code() != Exit::config) throw;
    }
  return found;
}

}  // namespace triax::parallel
