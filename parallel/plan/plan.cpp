#include "parallel/plan/plan.h"

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "core/check.h"
#include "parallel/pipeline/simulate.h"
#include "parallel/train/replica.h"

namespace triax::parallel {
namespace {

/// Ranks that are neighbours, `stride` apart, share a node if the whole group fits in one.
double speed(const Hardware& h, int64_t ranks, int64_t stride, int per_node) {
  return ranks * stride <= per_node ? h.link : h.network;
}

double seconds(const Ledger::Line& line, double bandwidth, const Hardware& h) {
  return line.bytes / bandwidth + double(line.calls) * h.latency;
}

double seconds(const KernelWork& work, DType dtype, const Hardware& h) {
  double peak = dtype == f32 ? h.fp32 : h.low;
  return work.products / (efficiency * peak) + work.bytes / h.bandwidth;
}

/// How long stages take that are busy for `busy` seconds in all, with their waits.
double with_waits(const StepOptions& o, double busy, const Hardware& h) {
  PipelineShape shape = o.pipeline();
  if (shape.stages == 1) return busy;
  std::vector<Actions> lists;
  for (int s = 0; s < shape.stages; ++s) lists.push_back(o.schedules.at(o.schedule)(shape, s));
  double each = busy / double(3 * shape.micros * shape.chunks);
  return simulate(lists, shape,
                  {.forward = each,
                   .backward_input = each,
                   .backward_weight = each,
                   .latency = h.latency})
      .time;
}

/// Sizes that an axis may have: the one that is given, else the divisors of `ranks`.
std::vector<int> choices(int given, int64_t ranks) {
  if (given > 0) return {given};
  std::vector<int> all;
  for (int n = 1; n <= ranks; ++n)
    if (ranks % n == 0) all.push_back(n);
  return all;
}

struct Search {
  std::vector<TrainOptions> valid;
  std::vector<std::string> refusals;  ///< different ones
};

void consider(const Task& task, TrainOptions t, int64_t ranks, Search& search) {
  try {
    resolve(t, ranks);
    check_options(t, ranks);
    place(probe(task.build, batch_like(task, t.step.micro_batch), probe_options(t.step)), t.step);
    search.valid.push_back(t);
  } catch (const Error& e) {
    std::string why = e.what();
    auto& all = search.refusals;
    if (std::find(all.begin(), all.end(), why) == all.end()) all.push_back(why);
  }
}

std::string shown(int64_t size) { return size > 0 ? std::to_string(size) : "any"; }

Search candidates(const Task& task, const PlanOptions& o) {
  const MeshShape& m = o.train.step.mesh;
  int64_t given = int64_t(std::max(1, m.dp)) * std::max(1, m.pp) * std::max(1, m.tp);
  int64_t ranks = o.ranks > 0 ? o.ranks : given;
  Search search;
  for (int tp : choices(m.tp, ranks))
    for (int pp : choices(m.pp, ranks)) {
      if (m.dp > 0 ? int64_t(m.dp) * pp * tp != ranks : ranks % (int64_t(pp) * tp) != 0) continue;
      for (int zero = std::max(0, o.zero); zero <= (o.zero < 0 ? 3 : o.zero); ++zero) {
        TrainOptions t = o.train;
        t.step.mesh = {.dp = int(ranks / (int64_t(pp) * tp)), .pp = pp, .tp = tp};
        t.step.zero = Zero(zero);
        bool layerwise = t.step.offload == Offloaded::parameters;  // which is ZeRO-3 alone
        bool needless = layerwise ? zero < 3 : t.step.mesh.dp == 1 && zero > 0;
        if (needless && o.zero < 0) continue;  // nothing to shard
        t.step.sequence_parallel = o.train.step.sequence_parallel && tp > 1;
        if (t.step.global_batch == 0) t.step.global_batch = t.step.micro_batch * ranks;
        consider(task, t, ranks, search);
      }
    }
  check_input(!search.valid.empty(), Exit::config, "{}",
              !search.refusals.empty()
                  ? search.refusals.front()
                  : fmt::format("mesh: {} ranks cannot be dp {} x pp {} x tp {}\n  Sizes must "
                                "multiply to {}. Leave one of --dp, --pp, --tp out, to be chosen.",
                                ranks, shown(m.dp), shown(m.pp), shown(m.tp), ranks));
  return search;
}

}  // namespace

StepTime step_time(const StepOptions& o, const std::vector<Demand>& stages, const Hardware& h,
                   int per_node) {
  const MeshShape& m = o.mesh;
  double tp = speed(h, m.tp, 1, per_node), dp = speed(h, m.dp, m.tp, per_node);
  StepTime slowest, most;
  for (const Demand& d : stages) {
    StepTime t{.compute = seconds(d.backward, o.dtype, h), .tensor = seconds(d.tp, tp, h)};
    if (t.total() > slowest.total()) slowest = t;
    double hidden = 2. / 3 * t.total() / (o.zero >= Zero::gradients ? 1 : double(o.accumulation()));
    most.data = std::max(most.data, std::max(0., seconds(d.dp, dp, h) - hidden));
    most.update = std::max(most.update, seconds(d.update, o.dtype, h) + seconds(d.publish, dp, h));
  }
  slowest.idle = with_waits(o, slowest.total(), h) - slowest.total();
  slowest.data = most.data;
  slowest.update = most.update;
  return slowest;
}

const Demand& Plan::fullest() const {
  return *std::max_element(stages.begin(), stages.end(),
                           [](const Demand& a, const Demand& b) { return a.peak < b.peak; });
}

double Plan::need(const Hardware& h) const {
  const Demand& d = fullest();
  bool beside = h.host == Hardware::Host::same && options.step.offload_dir.empty();
  return double(d.peak + (beside ? d.peaks[memory::offloaded] : 0));
}

double budget(const PlanOptions& o) {
  return o.memory.empty() ? hardware_named(o.hardware).memory : bytes_of(o.memory);
}

Plans plans(const Task& task, const PlanOptions& o) {
  check_task(task);
  const Hardware& h = hardware_named(o.hardware);
  double most = budget(o);
  Search search = candidates(task, o);
  Plans found{{}, search.refusals};
  auto last_line = std::chrono::steady_clock::now();  // of a long search: nobody waits in silence
  for (const TrainOptions& t : search.valid) {
    Plan p{t, foresee(task.build, batch_like(task, t.step.micro_batch), t.step, h.kind()), {}};
    p.time = step_time(t.step, p.stages, h, int(o.per_node));
    found.all.push_back(std::move(p));
    size_t done = found.all.size(), all = search.valid.size();
    auto now = std::chrono::steady_clock::now();
    if (now - last_line < std::chrono::seconds(5)) continue;
    last_line = now;
    fmt::print(stderr, "plan: {} of {} meshes, {} %\n", done, all, 100 * done / all);
  }
  std::stable_sort(found.all.begin(), found.all.end(), [&](const Plan& a, const Plan& b) {
    bool a_fits = a.need(h) <= most, b_fits = b.need(h) <= most;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.time.total() < b.time.total() : a.need(h) < b.need(h);
  });
  return found;
}

}  // namespace triax::parallel
