#include "examples/minigpt/rehearsal.h"

#include <cmath>
#include <set>

#include "core/check.h"
#include "core/gpus.h"
#include "examples/minigpt/hardware.h"
#include "examples/minigpt/offload.h"
#include "examples/minigpt/replica.h"
#include "optim/adamw.h"
#include "parallel/comm/meta_comm.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::minigpt {
namespace {

using parallel::Ledger;

parallel::MeshShape shape_of(const MeshConfig& m) { return {int(m.dp), int(m.pp), int(m.tp)}; }

/// Storage made on this thread is counted apart while it lives.
class OwnCounter {
 public:
  OwnCounter() : outer_(memory::counter()) {
    memory::set_counter(std::make_shared<memory::Counter>());
  }
  ~OwnCounter() { memory::set_counter(outer_); }
  OwnCounter(const OwnCounter&) = delete;
  OwnCounter& operator=(const OwnCounter&) = delete;

 private:
  std::shared_ptr<memory::Counter> outer_;
};

KernelWork operator-(const KernelWork& a, const KernelWork& b) {
  return {a.products - b.products, a.bytes - b.bytes};
}
Ledger::Line operator-(const Ledger::Line& a, const Ledger::Line& b) {
  return {a.calls - b.calls, a.bytes - b.bytes};
}

/// What x is after growing `times` times as much as it has since `before`.
KernelWork further(const KernelWork& x, const KernelWork& before, double times) {
  KernelWork grown = x - before;
  return {x.products + times * grown.products, x.bytes + times * grown.bytes};
}
Ledger::Line further(const Ledger::Line& x, const Ledger::Line& before, double times) {
  Ledger::Line grown = x - before;
  return {x.calls + std::llround(double(grown.calls) * times), x.bytes + grown.bytes * times};
}

class Rehearsal {
 public:
  Rehearsal(const TrainConfig& c, parallel::Communicator& world)
      : config_(c),
        mesh_(world, shape_of(c.mesh)),
        replica_(c, mesh_),
        adam_(replica_.data().slots(), adam_options(c)) {}

  Demand run() {
    Demand d = step();
    d.peak = memory::counter()->peak();
    for (int k = 0; k < memory::kinds; ++k)
      d.peaks[size_t(k)] = memory::counter()->peak(memory::Kind(k));
    std::set<nn::Parameter*> held;
    for (auto& chunk : replica_.chunks())
      for (auto& layer : chunk) {
        d.layers.push_back(layer.name);
        for (auto* m : layer.uses)
          for (auto* p : m->parameters()) held.insert(p);
      }
    for (auto* p : held) d.parameters += p->full.numel();
    return d;
  }

 private:
  /// What a step asks for, but the memory.
  Demand step() {
    Tensor ids = zeros({config_.micro_batch * config_.model.context}, i32, mesh_.world().device());
    nn::Batch batch{ids, ids, config_.model.context, 0};
    Demand before = so_far();
    replica_.step([&](int64_t) { return batch; }, 1);
    Demand middle = so_far();
    (void)replica_.data().norm();
    adam_.step(0);
    replica_.data().publish();
    Demand after = so_far();
    return {.backward = middle.backward - before.backward,
            .update = after.backward - middle.backward,
            .tp = after.tp - before.tp,
            .dp = middle.dp - before.dp,
            .links = after.links - before.links,
            .publish = after.dp - middle.dp};
  }

  Demand so_far() const {
    Demand d{.backward = meta_work(),
             .tp = mesh_.tp().ledger().total(),
             .dp = mesh_.dp().ledger().total()};
    for (auto* link : replica_.pipeline().links()) {
      auto line = link->ledger().total();
      d.links.calls += line.calls, d.links.bytes += line.bytes;
    }
    return d;
  }

  const TrainConfig& config_;
  parallel::Mesh mesh_;
  Replica replica_;
  optim::AdamW adam_;
};

}  // namespace

Demand rehearse(const TrainConfig& c, parallel::Communicator& world) {
  OwnCounter counter;
  return Rehearsal(c, world).run();
}

std::vector<Demand> foresee(const TrainConfig& c) {
  auto shape = shape_of(c.mesh);
  // Once the pipeline is full every further micro-batch is like those before it: two rehearsals say
  // what one adds. But gpipe keeps them all, with one stage too.
  int64_t micros = c.accumulation(), full = 2 * c.mesh.pp, half = c.mesh.pp;
  bool shorter = c.mesh.schedule != "gpipe" && micros > full + half;
  auto stage_with = [&](int64_t of, int stage) {
    TrainConfig few = c;
    few.global_batch = of * c.micro_batch * c.mesh.dp;
    parallel::MetaComm world(shape.size(), rank_of(shape, {.pp = stage}));
    return rehearse(few, world);
  };
  std::vector<Demand> stages;
  for (int stage = 0; stage < shape.pp; ++stage) {
    Demand d = stage_with(shorter ? full : micros, stage);
    if (shorter) {
      Demand before = stage_with(half, stage);
      double times = double(micros - full) / double(full - half);
      d.backward = further(d.backward, before.backward, times);
      d.tp = further(d.tp, before.tp, times);
      d.dp = further(d.dp, before.dp, times);
      d.links = further(d.links, before.links, times);
    }
    stages.push_back(d);
  }
  return stages;
}

std::string preview(const TrainConfig& c, Device device) {
  bool on_gpu = device.kind == Device::Kind::cuda;
  auto stages = foresee(c);
  // Of how many ranks the memory is; over MPI who knows how many share this machine, or this GPU.
  int64_t sharing = c.comm != "threads" ? 1 : c.mesh.dp * c.mesh.pp * c.mesh.tp;
  if (c.device == "cuda") sharing = (sharing + gpu_count() - 1) / gpu_count();
  double largest = 0, all = 0;
  double room = on_gpu ? double(gpu_memory(device.index)) : available_memory();
  bool beside = c.offload == "optimizer" && !on_gpu;  // what is offloaded is in the same memory
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s) {
    const Demand& d = stages[s];
    double bytes = double(d.peak + (beside ? d.peaks[memory::offloaded] : 0));
    largest = std::max(largest, bytes);
    all += bytes * double(c.mesh.dp * c.mesh.tp);
    text += fmt::format("  stage {}  {} parameters, tensors of a rank at most {}: {}\n", s,
                        d.parameters, show_bytes(double(d.peak)), fmt::join(d.layers, " "));
  }
  double needed = std::min(all, largest * double(sharing));
  check_input(room == 0 || needed < room, Exit::memory,
              "train: {} hold{} {} of tensors; {} has {} free\n  {}",
              sharing == 1 ? "a rank" : fmt::format("{} ranks", sharing), sharing == 1 ? "s" : "",
              show_bytes(needed), on_gpu ? fmt::format("cuda:{}", device.index) : "this machine",
              show_bytes(room), less_memory);
  return text;
}

std::vector<Demand> measure(const TrainConfig& c) {
  auto shape = shape_of(c.mesh);
  std::vector<Demand> stages(size_t(shape.pp));
  parallel::run_ranks(shape.size(), [&](parallel::Communicator& world) {
    Demand mine = rehearse(c, world);
    auto at = point_of(shape, world.rank());
    if (at.dp == 0 && at.tp == 0) stages[size_t(at.pp)] = mine;
  });
  return stages;
}

}  // namespace triax::minigpt
