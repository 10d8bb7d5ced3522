#include "examples/minigpt/plan.h"

#include <algorithm>

#include "core/check.h"
#include "parallel/pipeline/simulate.h"

namespace triax::minigpt {
namespace {

/// Ranks that are neighbours, `stride` apart, share a node if the whole group fits in one.
double speed(const Hardware& h, int64_t ranks, int64_t stride, int node) {
  return ranks * stride <= node ? h.link : h.network;
}

double seconds(const parallel::Ledger::Line& line, double bandwidth, const Hardware& h) {
  return line.bytes / bandwidth + double(line.calls) * h.latency;
}

double seconds(const KernelWork& work, const TrainConfig& c, const Hardware& h) {
  double peak = c.precision == "fp32" ? h.fp32 : h.low;
  return work.products / (efficiency * peak) + work.bytes / h.bandwidth;
}

/// How long stages take that are busy for `busy` seconds in all, with their waits.
double with_waits(const TrainConfig& c, double busy, const Hardware& h) {
  parallel::PipelineShape shape{int(c.mesh.pp), int(c.mesh.chunks), int(c.accumulation())};
  if (shape.stages == 1) return busy;
  std::vector<parallel::Actions> lists;
  for (int s = 0; s < shape.stages; ++s)
    lists.push_back(parallel::schedule_named(c.mesh.schedule)(shape, s));
  double each = busy / double(3 * shape.micros * shape.chunks);
  return simulate(lists, shape,
                  {.durations = {.forward = each,
                                 .backward_input = each,
                                 .backward_weight = each,
                                 .latency = h.latency}})
      .time;
}

}  // namespace

StepTime step_time(const TrainConfig& c, const std::vector<Demand>& stages, const Hardware& h,
                   int node) {
  const MeshConfig& m = c.mesh;
  double tp = speed(h, m.tp, 1, node), dp = speed(h, m.dp, m.tp, node);
  StepTime slowest, most;
  for (const Demand& d : stages) {
    StepTime t{.compute = seconds(d.backward, c, h), .tensor = seconds(d.tp, tp, h)};
    if (t.total() > slowest.total()) slowest = t;
    double hidden = 2. / 3 * t.total() / (m.zero >= 2 ? 1 : double(c.accumulation()));
    most.data = std::max(most.data, std::max(0., seconds(d.dp, dp, h) - hidden));
    most.update = std::max(most.update, seconds(d.update, c, h) + seconds(d.publish, dp, h));
  }
  slowest.idle = with_waits(c, slowest.total(), h) - slowest.total();
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
  bool beside = h.host == Hardware::Host::same && config.offload == "optimizer";
  return double(d.peak + (beside ? d.peaks[memory::offloaded] : 0));
}

namespace {

/// Sizes that an axis may have: the one that is given, else the divisors of `ranks`.
std::vector<int64_t> choices(int64_t given, int64_t ranks) {
  if (given > 0) return {given};
  std::vector<int64_t> all;
  for (int64_t n = 1; n <= ranks; ++n)
    if (ranks % n == 0) all.push_back(n);
  return all;
}

struct Search {
  std::vector<TrainConfig> valid;
  std::vector<std::string> refusals;  ///< different ones
};

void consider(TrainConfig c, int64_t ranks, Search& search) {
  c.comm = "threads";
  c.ranks = ranks;
  resolve(c, ranks, "plan");
  try {
    validate(c, ranks);
    search.valid.push_back(c);
  } catch (const Error& e) {
    std::string why = e.what();
    auto& all = search.refusals;
    if (std::find(all.begin(), all.end(), why) == all.end()) all.push_back(why);
  }
}

std::string shown(int64_t size) { return size > 0 ? std::to_string(size) : "any"; }

Search candidates(const PlanConfig& c) {
  const MeshConfig& m = c.train.mesh;
  int64_t given =
      std::max<int64_t>(1, m.dp) * std::max<int64_t>(1, m.pp) * std::max<int64_t>(1, m.tp);
  int64_t ranks = c.ranks > 0 ? c.ranks : given;
  Search search;
  for (int64_t tp : choices(m.tp, ranks))
    for (int64_t pp : choices(m.pp, ranks)) {
      if (m.dp > 0 ? m.dp * pp * tp != ranks : ranks % (pp * tp) != 0) continue;
      for (int64_t zero = std::max<int64_t>(0, m.zero); zero <= (m.zero < 0 ? 3 : m.zero); ++zero) {
        TrainConfig t = c.train;
        t.mesh.dp = ranks / (pp * tp), t.mesh.pp = pp, t.mesh.tp = tp, t.mesh.zero = zero;
        if (t.mesh.dp == 1 && zero > 0 && m.zero < 0) continue;  // nothing to share
        t.mesh.sequence_parallel = m.sequence_parallel && tp > 1;
        if (t.global_batch == 0) t.global_batch = t.micro_batch * ranks;
        consider(t, ranks, search);
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

double budget(const PlanConfig& c) {
  return c.memory.empty() ? hardware_named(c.hardware).memory : bytes_of(c.memory);
}

Plans plans(const PlanConfig& c) {
  const Hardware& h = hardware_named(c.hardware);
  double most = budget(c);
  Search search = candidates(c);
  Plans found{{}, search.refusals};
  for (const TrainConfig& t : search.valid) {
    Plan p{t, foresee(t), {}};
    p.time = step_time(t, p.stages, h, int(c.node));
    found.all.push_back(std::move(p));
  }
  std::stable_sort(found.all.begin(), found.all.end(), [&](const Plan& a, const Plan& b) {
    bool a_fits = a.need(h) <= most, b_fits = b.need(h) <= most;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.time.total() < b.time.total() : a.need(h) < b.need(h);
  });
  return found;
}

}  // namespace triax::minigpt
