#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>

#include "triax/autograd/scopes.h"
#include "triax/core/check.h"
#include "triax/parallel/parity/held.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel {
namespace {

void put(Assembled& whole, size_t at, float v) {
  bool same = std::bit_cast<uint32_t>(whole.values[at]) == std::bit_cast<uint32_t>(v);
  if (whole.known[at] && !same && whole.conflict.empty())
    whole.conflict = fmt::format("element {}: {} and {}", at, whole.values[at], v);
  whole.known[at] = true;
  whole.values[at] = v;
}

std::vector<float> on_host(const Tensor& x) {
  return x.detach().contiguous().to(f32).to_host<float>();
}

void bring(Assembled& whole, const Part& part, const Tensor& value) {
  whole.values.resize(size_t(part.full.numel()));
  whole.known.resize(whole.values.size());
  auto mine = on_host(value);
  for_each_overlap({.full = part.full}, part, [&](const Overlap& run) {
    for (int64_t i = 0; i < run.count; ++i)
      put(whole, size_t(run.to + i), mine[size_t(run.from + i)]);
  });
}

/// Writes `value` at `begin` into a whole of shape `full`; elements outside of it are padding.
void bring_at(Assembled& whole, const Shape& full, const Shape& begin, const Tensor& value) {
  whole.values.resize(size_t(full.numel()));
  whole.known.resize(whole.values.size());
  auto mine = on_host(value);
  for (size_t i = 0; i < mine.size(); ++i) {
    int64_t rest = int64_t(i), at = 0, stride = 1;
    bool inside = true;
    for (int d = value.rank() - 1; d >= 0; --d) {
      int64_t index = begin[d] + rest % value.size(d);
      inside = inside && index < full[d];
      at += index * stride;
      rest /= value.size(d), stride *= full[d];
    }
    if (inside) put(whole, size_t(at), mine[i]);
  }
}

/// Writes the part of a whole tensor that a piece holds into the piece.
void take(const Piece& piece, const Assembled& whole) {
  std::vector<float> mine(size_t(piece.value.numel()));
  for_each_overlap(piece.part, {.full = piece.part.full}, [&](const Overlap& run) {
    std::copy_n(whole.values.begin() + run.from, run.count, mine.begin() + run.to);
  });
  copy_(piece.value, from_host(mine, piece.value.shape(), cpu));
}

/// The trace that all ranks write to, one at a time.
struct Board {
  std::mutex lock;
  Trace trace;
};

/// One rank of a trace: a trainer, observed.
class Watcher {
 public:
  Watcher(const Task& task, const TrainOptions& o, World& world, Board& board)
      : board_(board),
        trainer_(task, o, world,
                 {.layer = [this](auto& name, auto& y, auto& b) { layer(name, y, b); },
                  .gradients = [this](const Step& s) { gradients(s); },
                  .choices = o.step.bitwise ? nullptr : board.trace.choices.get()}),
        samples_(o.step.bitwise ? 1 : trainer_.options().step.micro_batch),
        one_rank_(probe(task.build, batch_like(task, samples_),
                        {.dp = trainer_.options().step.mesh.replicas(),
                         .dtype = trainer_.options().step.dtype})),
        inputs_(nn::input_shapes(trainer_.options().step.share(batch_like(task, samples_), 0))) {}

  void run(const Trace* lead) {
    if (trainer_.first()) {
      for (auto& l : one_rank_.layers()) board_.trace.layers.push_back(l.name);
      const Replica& replica = trainer_.update().replica();
      for (auto* p : replica.parameters()) board_.trace.parameters.push_back(p->name);
      for (auto* b : replica.all_buffers()) board_.trace.buffers.push_back(b->name);
    }
    note_state(board_.trace.initial);
    for (size_t s = 0; s < board_.trace.steps.size(); ++s) {
      if (lead) follow(s == 0 ? lead->initial : lead->steps[s - 1].state);
      StepResult r = trainer_.step();
      {
        std::lock_guard guard(board_.lock);
        TraceStep& step = board_.trace.steps[s];
        if (trainer_.first()) step.loss = r.loss, step.skipped = r.skipped;
        step.loss_scale = r.loss_scale;
        step.norms.push_back(r.grad_norm);
      }
      note_state(board_.trace.steps[s].state);
    }
  }

 private:
  /// True if ranks train weights of their own: their gradients are not parts of one.
  bool apart() const { return trainer_.options().step.mesh.ranks_along(Cuts::weights) > 1; }

  TraceStep& now() { return board_.trace.steps[size_t(trainer_.done() - 1)]; }

  /// Records a layer's output. The place of this rank's part follows from the shapes: one rank's
  /// output for this micro-batch, and this one's.
  void layer(const std::string& name, const Tensor& y, const nn::Batch& batch) {
    auto inputs = batch.input.defined() ? nn::input_shapes(batch) : inputs_;  // some read none
    check_input(
        inputs == inputs_, Exit::config,
        "parity: a batch has input {}, the first has {}; expected batches of one shape: pad "
        "the samples",
        join(inputs, ", "), join(inputs_, ", "));
    Shape whole = one_rank_.of(name).out.shape, begin = whole;
    auto& o = trainer_.options().step;
    bool loss = name == one_rank_.layers().back().name;
    if (loss || y.rank() == 0 || y.rank() != whole.rank() || whole[0] % samples_ != 0) return;
    for (int d = 0; d < y.rank(); ++d)
      begin[d] = y.size(d) == whole[d] ? 0 : trainer_.update().mesh().tp().rank() * y.size(d);
    int64_t rows = whole[0] / samples_, shares = o.mesh.ranks_along(Cuts::rows);  // of a sample
    int64_t first = y.size(0) == whole[0] / shares ? 0 : begin[0];  // of what tp ranks have
    int64_t sample = batch.first - (trainer_.done() - 1) * o.global_batch, at = 0;
    whole[0] = rows * o.global_batch;
    check(sample >= 0 && sample < o.global_batch, "trace: sample {} of layer {}; expected 0 to {}",
          sample, name, o.global_batch - 1);
    Tensor held = on_cpu(y);
    std::lock_guard guard(board_.lock);
    for (int64_t i = sample; i < sample + samples_; ++i)
      for (const nn::Span& s : nn::spans(batch, rows / shares)) {
        int64_t from = std::max(at, first), to = std::min(at + s.count, first + y.size(0));
        begin[0] = i * rows + s.first + from - at;
        if (from < to)
          bring_at(now().activations[name], whole, begin, held.narrow(0, from - first, to - from));
        at += s.count;
      }
  }

  void gradients(const Step& s) {
    if (apart()) return;
    each_gradient(s, [&](Piece piece) {
      piece.kind.clear();
      bring_one(piece, now().gradients);
    });
  }

  void note_state(Wholes& to) {
    each_state(trainer_.update(), [&](const Piece& piece) { bring_one(piece, to); });
  }

  /// Records a piece. Its value is on the CPU before the lock is taken: a rank that waited for its
  /// device while it holds it would keep others from queueing what the device waits for.
  void bring_one(const Piece& piece, Wholes& to) {
    std::lock_guard guard(board_.lock);
    bring(to[name_of(piece)], piece.part, piece.value);
  }

  void follow(const Wholes& state) {
    trainer_.restore([&](auto& pieces) {
      for (auto& piece : pieces) {
        auto held = piece.value.storage()->hold(Access::write);
        take(piece, state.at(name_of(piece)));
      }
    });
  }

  Board& board_;
  Trainer trainer_;
  int64_t samples_;  // that layers see at once
  Facts one_rank_;
  std::vector<Shape> inputs_;  // shapes of their inputs
};

}  // namespace

int64_t Assembled::missing() const { return std::count(known.begin(), known.end(), false); }

Trace trace(const Task& task, TrainOptions o, const Lead& lead) {
  o.out = o.resume = o.metrics = "";
  o.step.adamw.eps = std::max(o.step.adamw.eps, 1e-6);  // rounding of gradients near 0 stays small
  Board board;
  board.trace.steps.resize(size_t(o.steps));
  board.trace.choices = std::make_shared<NotedChoices>(
      lead.choices ? lead.choices->choices.get() : nullptr, lead.near);
  on_threads(o, [&](World& world) { Watcher(task, o, world, board).run(lead.states); });
  return std::move(board.trace);
}

bool NotedChoices::follows(const Experts& mine, const Experts& theirs, const float* scores) const {
  for (size_t j = 0; j < mine.size(); ++j) {
    double a = scores[mine[j]], b = scores[theirs[j]];
    if (!(std::abs(a - b) <= near_ * std::max(std::abs(a), std::abs(b)))) return false;
  }
  return true;
}

Tensor NotedChoices::settled(const std::string& router, const std::vector<int64_t>& serial,
                             const Tensor& chosen, const Tensor& scores) const {
  auto k = size_t(chosen.size(1)), n = size_t(scores.size(1));
  auto all = chosen.to_host<int32_t>();
  auto by = scores.contiguous().to_host<float>();
  bool again = autograd::recomputing();
  std::lock_guard guard(lock_);
  for (size_t r = 0; r < serial.size(); ++r) {
    auto first = all.begin() + std::ptrdiff_t(r * k);
    Experts mine(first, first + std::ptrdiff_t(k));
    if (!noted_) {
      of_[{router, serial[r]}] = mine;
      continue;
    }
    auto found = noted_->of_.find({router, serial[r]});
    bool other = found != noted_->of_.end() && found->second != mine;
    bool takes = other && follows(mine, found->second, by.data() + r * n);
    if (!again) ++rows_.all;
    if (!takes) continue;
    // Another order alone makes the same sum.
    if (!again) rows_.followed += !std::ranges::is_permutation(mine, found->second);
    std::ranges::copy(found->second, first);
  }
  return from_host(all, chosen.shape(), chosen.device());
}

}  // namespace triax::parallel
