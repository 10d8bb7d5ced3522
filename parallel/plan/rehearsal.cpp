#include "triax/parallel/plan/rehearsal.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/settings/bytes.h"

namespace triax::parallel {
namespace {

constexpr Ledger::Line Demand::*traffic[] = {&Demand::tp, &Demand::dp, &Demand::cp, &Demand::ep,
                                             &Demand::links};

/// Returns x after growing `times` times as much as it has since `before`.
Ledger::Line further(const Ledger::Line& x, const Ledger::Line& before, double times) {
  Ledger::Line grown = x - before;
  return {x.calls + std::llround(double(grown.calls) * times), x.bytes + grown.bytes * times};
}

/// Returns a batch of the same shapes on the meta device, or `b` itself on a real one.
nn::Batch on(Device device, const nn::Batch& b) {
  if (device != meta_device) return b;
  return nn::mapped(b, [](auto& x) { return empty(x.shape(), x.dtype(), meta_device); });
}

/// Returns the bytes that a rank has sent so far.
Demand so_far(const Step& step) {
  const Mesh& mesh = step.mesh();
  Demand d{.tp = mesh.tp().ledger().total(),
           .cp = mesh.cp().ledger().total(),
           .ep = mesh.ep().ledger().total()};
  AxisSet data = mesh.data_axes();
  for (auto& [along, group] : mesh.groups())
    if (along.contains("dp") && std::ranges::includes(data, along)) d.dp += group->ledger().total();
  for (auto* link : step.replica().pipeline().links()) d.links += link->ledger().total();
  return d;
}

/// Rehearses a step of so many micro-batches, on the first rank of a stage.
Demand rehearse_stage(const Subject& of, StepOptions o, int64_t micros, int stage) {
  o.global_batch = micros * o.micro_batch * o.mesh.replicas();
  MetaComm world(o.mesh.size(), o.mesh.first_rank("pp", stage));
  return rehearse(of, o, world);
}

std::string by_kind(const Demand& d) {
  std::vector<std::string> kinds;
  for (int k = 0; k < memory::kinds; ++k)
    if (double bytes = double(d.peaks[size_t(k)]); bytes > 0)
      kinds.push_back(fmt::format("{} {}", memory::name(memory::Kind(k)), show_bytes(bytes)));
  return fmt::format("{}: {}", show_bytes(double(d.peak)), join(kinds, ", "));
}

}  // namespace

Subject subject_of(const Build& build, const nn::Batch& like, const StepOptions& o) {
  return {build, like, probe(build, like, probe_options(o))};
}

Demand rehearse(const Subject& of, const StepOptions& o, Communicator& world,
                const RehearsalObserver& observer) {
  memory::OwnCounter counter;
  Mesh mesh(world, o.mesh);
  Demand middle;
  StepOptions once = o;
  once.graph = false;  // a single step is never captured
  Step step(mesh, of.build, once, of.facts,
            {.gradients = [&](const Step& s) { middle = so_far(s); }});
  nn::Batch batch = on(world.device(), of.like);
  StepInput input{.batches = [&](int64_t) { return batch; }};
  if (observer.before) observer.before(step, input);
  Demand sent = so_far(step);
  step.take(input);
  if (observer.after) observer.after();
  Demand after = so_far(step), d{.peak = memory::counter()->peak()};
  after.dp = middle.dp;
  for (auto line : traffic) d.*line = after.*line - sent.*line;
  for (int k = 0; k < memory::kinds; ++k)
    d.peaks[size_t(k)] = memory::counter()->peak(memory::Kind(k));
  std::set<nn::Parameter*> held;
  for (auto& chunk : step.replica().chunks())
    for (auto& layer : chunk) {
      d.layers.push_back(layer.name);
      for (auto* m : layer.uses)
        for (auto* p : m->parameters()) held.insert(p);
    }
  for (auto* p : held) d.parameters += p->full.numel();
  return d;
}

std::vector<Demand> foresee_peaks(const Subject& subject, const StepOptions& o,
                                  const StagesOn& of) {
  MetaTarget target(of.on);
  std::vector<Demand> stages;
  for (int stage : of.stages) {
    stages.push_back(rehearse_stage(subject, o, filling(o, stage), stage));
    if (of.enough > 0 && double(stages.back().peak) > of.enough) break;
  }
  return stages;
}

std::vector<Demand> foresee(const Build& build, const nn::Batch& like, const StepOptions& o,
                            Device::Kind on) {
  MetaTarget target(on);
  Subject same = subject_of(build, like, o);
  std::vector<Demand> stages;
  for (int stage = 0; stage < o.mesh.pp; ++stage) {
    int64_t micros = o.accumulation(), full = filling(o, stage), more = full + o.mesh.pp;
    bool shorter = more < micros;
    Demand& d = stages.emplace_back(rehearse_stage(same, o, shorter ? more : micros, stage));
    if (!shorter) continue;
    // Two rehearsals of a full pipeline show the traffic of each micro-batch.
    Demand before = rehearse_stage(same, o, full, stage);
    double times = double(micros - more) / o.mesh.pp;
    for (auto line : traffic) d.*line = further(d.*line, before.*line, times);
  }
  return stages;
}

std::vector<Demand> measure(const Build& build, const nn::Batch& like, const StepOptions& o) {
  std::vector<Demand> stages(size_t(o.mesh.pp));
  run_ranks(o.mesh.size(), [&](Communicator& world) {
    Demand mine = rehearse(subject_of(build, like, o), o, world);
    int stage = o.mesh.place(world.rank(), {"pp"});
    if (world.rank() == o.mesh.first_rank("pp", stage)) stages[size_t(stage)] = mine;
  });
  return stages;
}

Preview preview(const Task& task, const TrainOptions& o, const World& world) {
  const MeshShape& mesh = o.step.mesh;
  Device device = const_cast<World&>(world).comm().device();
  bool on_gpu = device.kind == Device::Kind::cuda;
  auto stages = foresee(task.build, batch_like(task, o.step.micro_batch), o.step, device.kind);
  int64_t sharing = world.local_size();  // ranks that share this memory
  if (on_gpu)
    sharing = o.launch.device == "cuda" ? (sharing + gpu_count() - 1) / gpu_count() : sharing;
  double largest = 0, all = 0, offloaded = 0;
  double room = on_gpu ? double(gpu_memory(device.index)) : available_memory();
  bool beside = o.step.offload_dir.empty() && !on_gpu;  // offloaded bytes are in the same memory
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Demand& d = stages[s];
    double bytes = double(d.peak + (beside ? d.peaks[memory::offloaded] : 0));
    largest = std::max(largest, bytes);
    offloaded += double(d.peaks[memory::offloaded] * mesh.stage());
    all += bytes * double(mesh.stage());
    text += fmt::format("  stage {}  {} parameters, tensors of a rank at most {}: {}\n", s,
                        d.parameters, show_bytes(double(d.peak)), join(d.layers, " "));
  }
  double needed = std::min(all, largest * double(sharing));
  check_input(room == 0 || needed < room, Exit::memory,
              "train: {} hold{} {} of tensors; {} has {} free\n  {}",
              sharing == 1 ? "a rank" : fmt::format("{} ranks", sharing), sharing == 1 ? "s" : "",
              show_bytes(needed), on_gpu ? fmt::format("cuda:{}", device.index) : "this machine",
              show_bytes(room), less_memory);
  bool on_host = on_gpu && o.step.offload_dir.empty();
  check_input(!on_host || world.local_size() < world.size() || offloaded < available_memory(),
              Exit::memory,
              "train: {} are offloaded; this machine has {} free\n  Add --offload-dir DIR: files.",
              show_bytes(offloaded), show_bytes(available_memory()));
  return {text, by_kind(*std::ranges::max_element(stages, {}, &Demand::peak))};
}

}  // namespace triax::parallel
