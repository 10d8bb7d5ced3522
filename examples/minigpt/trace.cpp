#include "examples/minigpt/trace.h"

#include <algorithm>
#include <bit>
#include <mutex>

#include "core/check.h"
#include "examples/minigpt/feed.h"
#include "examples/minigpt/offload.h"
#include "examples/minigpt/pieces.h"
#include "examples/minigpt/precision.h"
#include "examples/minigpt/replica.h"
#include "nn/dropout.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "parallel/comm/launch/devices.h"
#include "parallel/comm/launch/world.h"

namespace triax::minigpt {
namespace {

using parallel::Part;
using parallel::Piece;

/// Where all ranks of a trace write, one at a time.
struct Board {
  std::mutex lock;
  Trace trace;
};

void bring(Assembled& whole, const Part& part, const Tensor& value) {
  whole.values.resize(size_t(part.full.numel()));
  whole.known.resize(whole.values.size());
  auto mine = value.detach().contiguous().to(f32).to_host<float>();
  for_each_overlap({.full = part.full}, part, [&](const parallel::Overlap& run) {
    for (int64_t i = 0; i < run.count; ++i) {
      auto at = size_t(run.to + i);
      float v = mine[size_t(run.from + i)];
      bool same = std::bit_cast<uint32_t>(whole.values[at]) == std::bit_cast<uint32_t>(v);
      if (whole.known[at] && !same && whole.conflict.empty())
        whole.conflict = fmt::format("element {}: {} and {}", at, whole.values[at], v);
      whole.known[at] = true;
      whole.values[at] = v;
    }
  });
}

std::string name_of(const Piece& piece) {
  return piece.kind.empty() ? piece.name : piece.name + "/" + piece.kind;
}

/// The part of a whole tensor that a piece holds, written into the piece.
void take(const Piece& piece, const Assembled& whole) {
  std::vector<float> mine(size_t(piece.value.numel()));
  for_each_overlap(piece.part, {.full = piece.part.full}, [&](const parallel::Overlap& run) {
    std::copy_n(whole.values.begin() + run.from, run.count, mine.begin() + run.to);
  });
  copy_(piece.value, from_host(mine, piece.value.shape(), cpu));
}

/// One rank of a trace.
class Tracer {
 public:
  Tracer(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh, Board& board)
      : config_(c),
        mesh_(mesh),
        board_(board),
        feed_(c, text, mesh.dp()),
        replica_(c, mesh, [this](auto& layer, auto& y, auto& batch) { observe(layer, y, batch); }),
        adam_(replica_.data().slots(), adam_options(c, 1e-6)) {}

  void run(const Trace* lead) {
    note_state(board_.trace.initial);
    optim::Schedule rate{.peak = config_.lr,
                         .low = config_.min_lr,
                         .warmup = config_.warmup,
                         .steps = config_.steps};
    for (step_ = 0; step_ < config_.steps; ++step_) {
      if (lead) follow(step_ == 0 ? lead->initial : lead->steps[size_t(step_) - 1].state);
      double tokens = double(config_.global_batch * config_.model.context);
      double scale = scaling(config_).initial;
      double loss =
          replica_.step([&](int64_t micro) { return feed_.at(step_ + 1, micro); }, scale / tokens)
              .item() /
          tokens;
      double norm = replica_.data().norm().value / scale;
      note_gradients();
      {
        std::lock_guard guard(board_.lock);
        now().loss += loss;  // all but one rank of a replica bring 0
        now().norms.push_back(norm);
      }
      adam_.step(rate.at(step_ + 1), optim::clip_factor(norm, config_.clip) / scale);
      replica_.data().publish();
      note_state(now().state);
    }
  }

 private:
  TraceStep& now() { return board_.trace.steps[size_t(step_)]; }

  void observe(const std::string& layer, const Tensor& y, const nn::Batch& batch) {
    if (y.rank() != 2) return;  // the loss
    int64_t all = config_.global_batch * config_.model.context;
    int64_t first = batch.first - step_ * all;
    if (y.size(0) < batch.ids.numel()) first += mesh_.tp().rank() * y.size(0);
    std::lock_guard guard(board_.lock);
    bring(now().activations[layer],
          {.full = {all, y.size(1)}, .dim = 0, .begin = first, .length = y.size(0)}, y);
  }

  void note_gradients() {
    std::lock_guard guard(board_.lock);
    for (auto& piece : gradient_pieces(replica_.data()))
      bring(now().gradients[piece.name], piece.part, piece.value);
  }

  /// Weights come from where layers read them, so that a stale copy shows; moments from their
  /// slots.
  void note_state(Wholes& to) {
    auto hold = replica_.data().gather_all();
    std::lock_guard guard(board_.lock);
    for (auto* p : replica_.model().parameters()) {
      if (!p->value.defined()) continue;
      Tensor slice = p->value.detach();
      if (p->shard.padding > 0) slice = slice.narrow(0, 0, p->slice()[0]);
      bring(to[p->name], part_of(*p), slice);
    }
    for (auto& piece : pieces(replica_.data(), adam_, Holder::any))
      if (!piece.kind.empty()) {
        auto held = piece.value.storage()->hold(Access::read);
        bring(to[name_of(piece)], piece.part, piece.value);
      }
  }

  void follow(const Wholes& state) {
    for (auto& piece : pieces(replica_.data(), adam_, Holder::any)) {
      auto held = piece.value.storage()->hold(Access::write);
      take(piece, state.at(name_of(piece)));
    }
    replica_.data().publish();
  }

  const TrainConfig& config_;
  parallel::Mesh& mesh_;
  Board& board_;
  Feed feed_;
  Replica replica_;
  optim::AdamW adam_;
  int64_t step_ = 0;
};

}  // namespace

int64_t Assembled::missing() const { return std::count(known.begin(), known.end(), false); }

Trace trace(const TrainConfig& c, const TextData& text, const Trace* lead) {
  Board board;
  board.trace.steps.resize(size_t(c.steps));
  const MeshConfig& m = c.mesh;
  auto rank = [&](parallel::World& world) {
    parallel::Mesh mesh(world.comm(), {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Tracer(c, text, mesh, board).run(lead);
  };
  parallel::run_worlds(int(m.dp * m.pp * m.tp), rank, {.device = parallel::device_named(c.device)});
  return std::move(board.trace);
}

}  // namespace triax::minigpt
