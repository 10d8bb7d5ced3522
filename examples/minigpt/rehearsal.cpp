#include "examples/minigpt/rehearsal.h"

#include <cmath>
#include <set>

#include "core/check.h"
#include "examples/minigpt/hardware.h"
#include "examples/minigpt/offload.h"
#include "examples/minigpt/replica.h"
#include "optim/adamw.h"
#include "parallel/comm/meta_comm.h"
#include "parallel/comm/thread_comm.h"

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

Ledger::Line repeated(const Ledger::Line& a, double times) {
  return {std::llround(double(a.calls) * times), a.bytes * times};
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
  // Once the pipeline is full every further micro-batch is like those before it, but gpipe keeps
  // them all, with one stage too.
  TrainConfig few = c;
  int64_t full = 4 * c.mesh.pp * c.mesh.chunks;
  bool steady = c.mesh.schedule != "gpipe";
  if (steady && c.accumulation() > full) few.global_batch = full * c.micro_batch * c.mesh.dp;
  double times = double(c.accumulation()) / double(few.accumulation());
  std::vector<Demand> stages;
  for (int stage = 0; stage < shape.pp; ++stage) {
    parallel::MetaComm world(shape.size(), rank_of(shape, {.pp = stage}));
    Demand d = rehearse(few, world);
    d.backward = {d.backward.products * times, d.backward.bytes * times};
    d.tp = repeated(d.tp, times), d.links = repeated(d.links, times);
    if (c.mesh.zero >= 2) d.dp = repeated(d.dp, times);  // else once a step
    stages.push_back(d);
  }
  return stages;
}

std::string describe_stages(const std::vector<Demand>& stages) {
  std::string text;
  for (size_t s = 0; s < stages.size(); ++s)
    text += fmt::format("  stage {}  {} parameters, tensors of a rank at most {}: {}\n", s,
                        stages[s].parameters, show_bytes(double(stages[s].peak)),
                        fmt::join(stages[s].layers, " "));
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
