#include "parallel/parity/replay.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "parallel/comm/launch/world.h"
#include "parallel/parity/held.h"
#include "parallel/train/trainer.h"

namespace triax::parallel {
namespace {

std::string output_of(const std::string& layer, int64_t number) {
  return fmt::format("{}/output/{}", layer, number);
}

/// Samples that layers see at once.
int64_t at_once(const StepOptions& o) { return o.bitwise ? 1 : o.micro_batch; }

/// `dim 1 from 32 to 63 of [64, 64], elements 0 to 511 of that`.
std::string describe(const Part& part) {
  std::string text = fmt::format("all of {}", part.full);
  if (part.dim >= 0)
    text = fmt::format("dim {} from {} to {} of {}", part.dim, part.begin,
                       part.begin + part.length - 1, part.full);
  if (!is_whole_slice(part))
    text += fmt::format(", of that elements {} to {}", part.flat_begin,
                        part.flat_begin + count(part) - 1);
  return text;
}

/// One rank of a replay; the one that is looked at fills in `replay`.
class Player {
 public:
  Player(const Task& task, const TrainOptions& o, World& world, const ReplayPoint& point,
         Replay& replay)
      : point_(point),
        replay_(replay),
        world_(world),
        trainer_(task, o, world,
                 {.layer = [this](auto& name, auto& y, auto& b) { layer(name, y, b); },
                  .gradients = [this](const Step& s) { gradients(s); }}) {}

  void run() {
    together(world_.host(), [&] {
      if (looked_at() && !point_.tensor.empty()) check_name();
    });
    while (trainer_.done() < point_.step) step();
    each_state(trainer_.update(), [&](const Piece& p) { note(p); });
    if (!point_.later.empty() && !diverged_) compare();
  }

 private:
  bool looked_at() const { return world_.rank() == point_.rank; }
  bool now() const { return looked_at() && trainer_.done() == point_.step; }

  void step() try {
    StepResult r = trainer_.step();
    if (!looked_at()) return;
    replay_.steps.push_back(r);
    if (!now()) return;
    replay_.table.rows.push_back(digest_of("loss", r.loss));
    replay_.table.rows.push_back(digest_of("grad_norm", r.grad_norm));
  } catch (const Diverged&) {
    if (trainer_.done() < point_.step) throw;
    diverged_ = true;
    if (looked_at()) replay_.diverged = std::current_exception();
  }

  void layer(const std::string& name, const Tensor& y, const nn::Batch& batch) {
    if (!now()) return;
    auto& o = trainer_.options().step;
    int64_t sample = batch.first - trainer_.consumed() + o.global_batch;  // of this step
    int64_t mine = sample / (o.micro_batch * o.mesh.dp) * o.micro_batch + sample % o.micro_batch;
    note(output_of(name, mine / at_once(o)), y, "");
  }

  void gradients(const Step& s) {
    each_gradient(s, [&](const Piece& p) { note(p); });
  }

  void note(const Piece& p) { note(name_of(p), p.value, describe(p.part)); }
  /// Once: a step that is not finite runs its layers again.
  void note(const std::string& name, const Tensor& y, const std::string& part) {
    if (!now() || !noted_.insert(name).second) return;
    Tensor held = on_cpu(y);
    replay_.table.rows.push_back(digest_of(name, held));
    if (name == point_.tensor) replay_.value = {name, clone(held)}, replay_.part = part;
  }

  void check_name() const {
    std::vector<std::string> names;
    const Step& s = trainer_.update();
    auto& o = s.options();
    for (auto& chunk : s.replica().chunks())
      for (auto& l : chunk)
        for (int64_t i = 0; i < o.accumulation() * o.micro_batch / at_once(o); ++i)
          names.push_back(output_of(l.name, i));
    for (auto* p : s.replica().parameters())
      if (p->value.defined()) names.push_back(p->name);
    for (auto& p : gradient_pieces(s.replica().data())) names.push_back(name_of(p));
    for (auto& p : s.pieces(Holder::any)) names.push_back(name_of(p));
    check_input(std::ranges::count(names, point_.tensor) > 0, Exit::config,
                "replay: rank {} has no tensor {}{}\n  Leave --tensor out for a list of all.",
                point_.rank, printable(point_.tensor), hint(point_.tensor, names, "{}"));
  }

  /// With what the run saved after this step.
  void compare() {
    auto later = Checkpoint::open(point_.later, world_.host());
    auto same = [&](const Piece& p) {
      Tensor saved = later.read(p.name, p.part, p.kind);
      return saved.dtype() == p.value.dtype() &&
             std::memcmp(saved.data(), p.value.data(), saved.bytes()) == 0;
    };
    each_state(trainer_.update(), [&](const Piece& p) {
      if (!looked_at()) return;
      ++replay_.compared;
      if (replay_.differs.empty() && !same(p)) replay_.differs = name_of(p);
    });
  }

  const ReplayPoint& point_;
  Replay& replay_;
  World& world_;
  Trainer trainer_;
  std::set<std::string> noted_;
  bool diverged_ = false;  // on all ranks
};

}  // namespace

Replay replay(const Task& given, TrainOptions o, const ReplayPoint& point) {
  int64_t from = read_manifest(point.checkpoint).step;
  check_input(from < point.step, Exit::config,
              "replay: step={}, and checkpoint {} is of step {}; expected a later step\n"
              "  A step is computed from a checkpoint before it.",
              point.step, point.checkpoint, from);
  const MeshShape& m = o.step.mesh;
  check_input(point.rank >= 0 && point.rank < m.size(), Exit::config,
              "replay: rank={} on a mesh of dp {} x pp {} x tp {}; expected 0 to {}", point.rank,
              m.dp, m.pp, m.tp, m.size() - 1);
  Task task = given;
  task.identity = identity_of(given);  // read once for all ranks
  o.out = o.metrics = "";
  o.resume = point.checkpoint;
  Replay replay;
  auto at = point_of(m, point.rank);
  replay.table.of =
      fmt::format("step {} of rank {} (dp {}, pp {}, tp {}) of dp {} x pp {} x tp {}, ZeRO {}",
                  point.step, point.rank, at.dp, at.pp, at.tp, m.dp, m.pp, m.tp, int(o.step.zero));
  auto rank = [&](World& world) { Player(task, o, world, point, replay).run(); };
  run_worlds(m.size(), rank,
             {.device = device_named(o.launch.device),
              .gpu_transport = GpuTransport::available,
              .wrap = o.launch.wrap});
  return replay;
}

}  // namespace triax::parallel
