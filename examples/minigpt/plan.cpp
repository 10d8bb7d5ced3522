#include "examples/minigpt/plan.h"

#include <algorithm>
#include <cstdio>

#include "core/check.h"
#include "examples/minigpt/text_data.h"
#include "parallel/mesh.h"
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

int64_t Plan::peak() const {
  int64_t most = 0;
  for (const Demand& d : stages) most = std::max(most, d.peak);
  return most;
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
  std::string refusal;  ///< the first
};

void consider(TrainConfig c, int64_t ranks, Search& search) {
  c.comm = "threads";
  c.ranks = ranks;
  resolve(c, ranks, "plan");
  try {
    validate(c, ranks);
    search.valid.push_back(c);
  } catch (const Error& e) {
    if (search.refusal.empty()) search.refusal = e.what();
  }
}

std::string shown(int64_t size) { return size > 0 ? std::to_string(size) : "any"; }

std::vector<TrainConfig> candidates(const PlanConfig& c) {
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
              !search.refusal.empty()
                  ? search.refusal
                  : fmt::format("mesh: {} ranks cannot be dp {} x pp {} x tp {}\n{}", ranks,
                                shown(m.dp), shown(m.pp), shown(m.tp),
                                parallel::shapes_that_fit({1, 1, 1}, int(ranks))));
  return search.valid;
}

double budget(const PlanConfig& c) {
  return c.memory.empty() ? hardware_named(c.hardware).memory : bytes_of(c.memory);
}

void print_head(const PlanConfig& c, const Plan& first) {
  const Hardware& h = hardware_named(c.hardware);
  const TrainConfig& t = first.config;
  fmt::print("model: {} layers, {} heads, width {}, context {}, vocabulary {}, {}\n",
             t.model.layers, t.model.heads, t.model.width, t.model.context, t.model.vocab,
             t.precision);
  fmt::print(
      "{} ranks, {} a node, of {}: {} memory, {:.0f} TFLOP/s at {:.0f} %, {:.2f} TB/s; {:.0f} GB/s "
      "in a node, {:.0f} between\n",
      t.mesh.dp * t.mesh.pp * t.mesh.tp, c.node, h.name, show_bytes(budget(c)),
      (t.precision == "fp32" ? h.fp32 : h.low) / 1e12, 100 * efficiency, h.bandwidth / 1e12,
      h.link / 1e9, h.network / 1e9);
}

void print_rows(const PlanConfig& c, std::span<const Plan> all) {
  fmt::print("\n{:>12} {:>4} | {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} | {:>9} | {:>9} {:>5}\n",
             "dp x pp x tp", "ZeRO", "parameters", "gradients", "optimizer", "activations",
             "buffers", "offloaded", "peak", "ms a step", "idle");
  for (const Plan& p : all) {
    const MeshConfig& m = p.config.mesh;
    auto worst = std::max_element(p.stages.begin(), p.stages.end(),
                                  [](auto& a, auto& b) { return a.peak < b.peak; });
    auto kind = [&](memory::Kind k) { return show_bytes(double(worst->peaks[k])); };
    fmt::print(
        "{:>12} {:>4} | {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} | {:>9} | {:>9.4g} {:>4.0f}%  "
        "{}\n",
        fmt::format("{} x {} x {}", m.dp, m.pp, m.tp), m.zero, kind(memory::parameters),
        kind(memory::gradients), kind(memory::optimizer), kind(memory::activations),
        kind(memory::buffers), kind(memory::offloaded), show_bytes(double(worst->peak)),
        1e3 * p.time.total(), 100 * p.time.idle / p.time.total(),
        double(worst->peak) <= budget(c) ? "fits" : "too large");
  }
}

/// The largest share decides what would help.
std::string advice(const Plan& p) {
  auto worst = std::max_element(p.stages.begin(), p.stages.end(),
                                [](auto& a, auto& b) { return a.peak < b.peak; });
  auto end = worst->peaks.begin() + memory::offloaded;  // the last kind, in no one's way
  auto at = std::max_element(worst->peaks.begin(), end) - worst->peaks.begin();
  const char* cures[] = {"--recompute block, or a smaller --micro-batch",
                         "--zero 3, or more --pp or --tp", "--zero 2, or more --pp or --tp",
                         "--zero 1, or --offload", "a smaller --micro-batch"};
  return fmt::format("Most of it is {}: try {}.", memory::name(memory::Kind(at)), cures[at]);
}

/// Trains a step on a mesh of threads.
void check_against_run(const Plan& p) {
  auto found = measure(p.config);
  fmt::print("\n{:>5}  {:>14} {:>14} {:>8}\n", "stage", "foreseen", "measured", "apart");
  for (size_t s = 0; s < found.size(); ++s)
    fmt::print("{:>5}  {:>14} {:>14} {:>7.2f}%\n", s, p.stages[s].peak, found[s].peak,
               100 * (double(p.stages[s].peak) / double(found[s].peak) - 1));
}

}  // namespace

std::vector<Plan> plans(const PlanConfig& c) {
  std::vector<Plan> all;
  for (const TrainConfig& t : candidates(c)) {
    Plan p{t, foresee(t), {}};
    p.time = step_time(t, p.stages, hardware_named(c.hardware), int(c.node));
    all.push_back(std::move(p));
  }
  double most = budget(c);
  std::stable_sort(all.begin(), all.end(), [&](const Plan& a, const Plan& b) {
    bool a_fits = double(a.peak()) <= most, b_fits = double(b.peak()) <= most;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.time.total() < b.time.total() : a.peak() < b.peak();
  });
  return all;
}

Exit plan(const PlanConfig& given) {
  PlanConfig c = given;
  (void)budget(c);  // refuses what is no size
  TrainConfig& t = c.train;
  if (t.model.vocab == 0) {
    TrainConfig one = t;
    one.mesh = {};
    resolve(one, 1, "plan");
    t.model.vocab = vocabulary(0, Tokenizer::from_text(read_text(one.data), "data: " + one.data));
  }
  auto all = plans(c);
  print_head(c, all.front());
  print_rows(c, std::span(all).first(std::min(all.size(), size_t(c.top))));
  if (all.size() > size_t(c.top))
    fmt::print("and {} more: --top {}\n", all.size() - size_t(c.top), all.size());
  const Plan& best = all.front();
  check_input(double(best.peak()) <= budget(c), Exit::config,
              "plan: nothing fits in {}; the smallest needs {}\n  {}", show_bytes(budget(c)),
              show_bytes(double(best.peak())), advice(best));
  if (c.check) check_against_run(best);
  return Exit::ok;
}

}  // namespace triax::minigpt
