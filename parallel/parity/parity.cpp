#include "triax/parallel/parity/parity.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "triax/core/check.h"
#include "triax/parallel/comm/gpu/nccl_comm.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/options/groups.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

/// Returns a quarter of the distance between 1 and the next number.
double roundoff(DType dtype) { return dtype == bf16 ? 0x1p-9 : dtype == f16 ? 0x1p-12 : 0; }
/// Returns the roundoff of gradients sent between data-parallel ranks.
double rounded_when_sent(const StepOptions& o) {
  return o.mesh.data() > 1 ? roundoff(o.reduce_dtype) : 0;
}

double highest_rate(const TrainOptions& o) {
  double factor = 1;
  for (auto& group : parse_groups(o.step.groups)) factor = std::max(factor, group.lr);
  return o.lr.peak * factor;
}

/// Returns bounds of a led run. Sums in another order are rounded to the activations' dtype at
/// other places. In units of its roundoff, six meshes of minigpt were apart by at most 6.7 in
/// activations, 2 in gradients, 0.03 in the loss, 0.2 in the norm, 3.7 in weights and moments, in
/// bf16 and in fp16 alike; a classifier of 16 samples, whose errors average out less, by 1.6 in the
/// loss, and by 33 in a gradient behind a ReLU that rounding had switched off.
ParityBounds led_bounds(const TrainOptions& o) {
  double u = roundoff(o.step.dtype), rate = highest_rate(o), sent = rounded_when_sent(o.step);
  ParityBounds b{.update = 0.02 * rate, .noise = 2 * rate};
  if (o.step.algorithm == Algorithm::lion) b.lion = {o.step.adamw.beta1, o.step.clip};
  if (o.step.bitwise) return {.loss = 0, .norm = 0, .gradient = 0, .activation = 0, .weight = 0};
  if (sent > 0) b.gradient = 8 * sent, b.norm = sent, b.update = 0.1 * rate;
  // Muon gives all directions of a gradient the same size: of the smallest, rounding is a part. Its
  // whole update is 0.2 of the rate on average (root of the mean square).
  if (o.step.algorithm == Algorithm::muon && (sent > 0 || u > 0)) b.muon = 0.5 * rate;
  if (u == 0) return b;
  b.activation = 32 * u, b.gradient = 64 * u, b.loss = 4 * u, b.norm = 8 * u, b.weight = 16 * u;
  b.update = 0.1 * rate;
  return b;
}

/// Returns bounds of a free run, whose steps drift apart by rounding alone, more each step.
ParityBounds free_bounds(const TrainOptions& o) {
  ParityBounds b = led_bounds(o);
  double u = roundoff(o.step.dtype), rate = highest_rate(o), steps = double(o.steps);
  double sent = rounded_when_sent(o.step);
  if (o.step.bitwise) return b;
  b.noise = 2 * rate * steps;
  b.drift = u == 0 ? 0.01 : sent > 0 ? 0.5 : 0.25;
  if (u == 0) {
    b.gradient = b.activation = b.weight = b.norm = 2e-4;
    b.loss = 2e-5;
    b.update = 0.1 * rate;
    if (sent == 0) return b;
    b.gradient = 8 * sent, b.norm = sent, b.loss = 2e-3;
    b.drift = 0.05, b.update = rate * steps;
    return b;
  }
  b.activation = 64 * u, b.gradient = 128 * u, b.weight = 32 * u;
  b.loss = 0.02, b.norm = 16 * u;
  b.update = rate * steps;
  return b;
}

double relative(double right, double other) { return std::abs(other - right) / std::abs(right); }

/// Prints both runs; on a narrow terminal without the mesh's numbers.
void print(const Trace& reference, const Trace& run) {
  bool wide = output_columns() >= 80;
  auto mesh = [&](const std::string& cell) { return wide ? fmt::format(" {:>11}", cell) : ""; };
  fmt::print("step {:>11}{} {:>8} {:>11}{} {:>8}\n", "loss: 1", mesh("mesh"), "apart", "norm: 1",
             mesh("mesh"), "apart");
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    const TraceStep &a = reference.steps[s], &b = run.steps[s];
    fmt::print("{:>4} {:>11.8f}{} {:>8.1e} {:>11.7f}{} {:>8.1e}{}\n", s + 1, a.loss,
               mesh(fmt::format("{:.8f}", b.loss)), relative(a.loss, b.loss), a.norms[0],
               mesh(fmt::format("{:.7f}", b.norms[0])), relative(a.norms[0], b.norms[0]),
               a.skipped ? " skipped" : "");
  }
}

void print(const Difference& d) {
  std::string when = d.step == 0 ? "before the first step" : fmt::format("at step {}", d.step);
  fmt::print("DIFFERENT {}: {}{}{}\n  {}\n", when, d.what, d.name.empty() ? "" : " of ", d.name,
             d.how_much);
  if (!d.guess.empty()) fmt::print("  perhaps: {}\n", d.guess);
}

std::string title(const StepOptions& s) {
  bool recomputes = s.recompute != Recompute::off;
  return fmt::format("{}, ZeRO {}, {}{}{}{}", str(s.mesh), int(s.zero), s.schedule,
                     s.sequence_parallel ? ", sequence parallel" : "",
                     recomputes ? fmt::format(", recompute {}", name(s.recompute)) : "",
                     s.dtype == f32 ? "" : fmt::format(", {}", s.dtype)) +
         (s.reduce_dtype == f32 ? "" : fmt::format(", gradients sent in {}", s.reduce_dtype));
}

/// Returns what was compared, and which layers' activations were not: the loss aside, those that
/// are not rows of samples.
std::string compared(const Trace& reference, const MeshShape& mesh) {
  const TraceStep& step = reference.steps.front();
  std::vector<std::string> apart;
  for (auto& name : reference.layers)
    if (name != reference.layers.back() && !step.activations.contains(name)) apart.push_back(name);
  size_t frozen = step.skipped ? 0 : reference.parameters.size() - step.gradients.size();
  std::string text =
      fmt::format("EQUAL: loss, norm, {} activations, {} gradients and weights of every step",
                  step.activations.size(), reference.parameters.size() - frozen);
  if (mesh.ranks_along(Cuts::weights) > 1)  // each rank has gradients of its own
    text = fmt::format("EQUAL: loss, {} activations and weights of every step",
                       step.activations.size());
  if (frozen > 0) text += fmt::format(", {} frozen weights", frozen);
  if (!apart.empty())
    text += fmt::format(
        "\nnot compared: the activations of {}, which are not rows of samples along "
        "dim 0, alike on all meshes",
        join(apart, ", "));
  return text;
}

}  // namespace

TrainOptions reference_of(TrainOptions o, OneRank takes) {
  StepOptions& s = o.step;
  s.mesh = s.mesh.ones();
  s.chunks = 1;
  s.schedule = "1f1b";
  s.placement = "";
  s.zero = Zero::off;
  s.sequence_parallel = false;
  s.recompute = Recompute::off;
  if (takes == OneRank::whole_batch) s.micro_batch = s.bitwise ? 1 : s.global_batch;
  s.offload = Offloaded::nothing;
  s.offload_dir = "";
  s.places.clear();
  o.workers = 0;
  return o;
}

void choose_batch(TrainOptions& o) {
  StepOptions& s = o.step;
  if (s.global_batch > 0) return;
  resolve(o, s.mesh.size());
  s.global_batch *= std::max(2, s.mesh.pp);
}

std::optional<Difference> compare_with_reference(const Task& task, const TrainOptions& o,
                                                 const Trace& reference, const SeeRun& see) {
  for (bool led : {true, false}) {
    ParityBounds bounds = led ? led_bounds(o) : free_bounds(o);
    Trace run = trace(
        task, o,
        {.states = led ? &reference : nullptr, .choices = &reference, .near = bounds.activation});
    auto d = first_difference(reference, run, o.step.mesh, bounds);
    if (see) see(run, led && !d);
    if (d) return d;
  }
  return {};
}

std::optional<Difference> find_difference(const Task& given, const TrainOptions& o, OneRank takes,
                                          const SeeRuns& see) {
  check_input(o.steps >= 1 && o.steps <= 10000, Exit::config,
              "parity: steps={}; expected 1 to 10000, which are kept in memory", o.steps);
  check_task(given);
  Task task = given;
  task.identity = identity_of(given);  // read once for all ranks and runs
  // Errors of the mesh come first: they say more than those of the reference.
  Facts facts = probe(task.build, batch_like(task, o.step.micro_batch), probe_options(o.step));
  (void)place(facts, o.step);
  if (o.step.mesh.size() > 1) prepare_nccl();  // before the reference starts CUDA
  Trace reference = trace(task, reference_of(o, takes));
  return compare_with_reference(
      task, o, reference, [&](const Trace& run, bool another) { see(reference, run, another); });
}

Exit parity(const Task& task, TrainOptions o, OneRank takes) {
  choose_batch(o);
  resolve(o, o.step.mesh.size());
  print_folded(fmt::format("parity: {} against one rank, {} steps", title(o.step), o.steps));
  if (int64_t micros = std::max(2, o.step.mesh.pp); o.step.accumulation() < micros)
    print_folded(
        fmt::format("note: {} micro-batch{} a replica; --global-batch {} tests gradient "
                    "accumulation and the pipeline too\n",
                    o.step.accumulation(), o.step.accumulation() == 1 ? "" : "es",
                    o.step.micro_batch * o.step.mesh.replicas() * micros));
  std::fflush(stdout);
  std::string equal;
  auto see = [&](const Trace& reference, const Trace& run, bool another) {
    print(reference, run);
    if (auto rows = run.choices->rows(); rows.followed > 0)
      fmt::print(
          "experts of {} of {} rows as on one rank, where scores are equal but for rounding\n",
          rows.followed, rows.all);
    if (another) fmt::print("each step from the reference's state: equal. Free-running:\n");
    std::fflush(stdout);
    equal = compared(reference, o.step.mesh);
  };
  auto difference = find_difference(task, o, takes, see);
  if (!difference) {
    print_folded(equal);
    return Exit::ok;
  }
  print(*difference);
  return Exit::differs;
}

}  // namespace triax::parallel
