#include "triax/parallel/train/model/probe.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "triax/autograd/backward.h"
#include "triax/autograd/scopes.h"
#include "triax/core/check.h"
#include "triax/core/memory.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/model/by_sample.h"
#include "triax/parallel/train/model/model_checks.h"
#include "triax/parallel/train/options/groups.h"

namespace triax::parallel {
namespace {

/// Returns a micro-batch like `b` on the meta device, as a step gives it to layers, without values.
nn::Batch on_meta(const nn::Batch& b, DType dtype) {
  return nn::mapped(b, [&](const Tensor& x) {
    return empty(x.shape(), is_float(x.dtype()) ? dtype : x.dtype(), meta_device);
  });
}

/// Stands in for the dp ranks during a probe: tensors on the meta device have no values to sum.
struct AbsentReplicas : nn::Replicas {
  int64_t of = 1;
  explicit AbsentReplicas(int64_t count) : of(count) {}
  int64_t count() const override { return of; }
  void sum(const Tensor&, int64_t) const override {}
};

std::vector<SharedParameter> shared_by(const nn::Layers& layers,
                                       const std::vector<nn::Parameter*>& all) {
  std::map<nn::Parameter*, std::vector<size_t>> users;
  for (size_t i = 0; i < layers.size(); ++i)
    for (auto* p : used_by(layers[i])) users[p].push_back(i);
  std::vector<SharedParameter> shared;
  for (auto* p : all)
    if (users[p].size() > 1 || (p->tied && !users[p].empty()))
      shared.push_back({p->name, p->tied, users[p]});
  return shared;
}

/// Checks that parameters see each rank's own rows: sequence parallelism sums the ranks' gradients.
/// The last of `layers` is as `alone`, the same model's with tp=1, if every rank has all rows.
void check_rows(const std::vector<LayerFacts>& layers, const std::vector<LayerFacts>& alone,
                int tp) {
  size_t at = layers.size() - 1;
  auto whole = [&](size_t i) {
    return i < alone.size() && layers[i].out.shape == alone[i].out.shape;
  };
  check_input(!whole(at) || (at > 0 && !whole(at - 1)), Exit::config,
              "sequence-parallel, and each of the {} ranks has all rows of {}; its gradients would "
              "be {} times too large\n  Begin the model with tp.scatter_rows(x) or "
              "parallel::TokenLayer, or leave --sequence-parallel out.",
              tp, layers[at].out.shape, tp);
}

nn::Layer checked(nn::Layer layer) {
  layer.run = [run = std::move(layer.run)](const Tensor& x, const nn::Batch& batch) {
    Tensor y = run(x, batch);
    check_input(y.defined(), Exit::config,
                "it returns no tensor; expected an activation, or the loss");
    return y;
  };
  return layer;
}

/// Ranks on the meta device that note when this one starts collectives and waits for them.
class Metronome final : public MetaComm {
 public:
  using MetaComm::MetaComm;
  /// Returns the beats since the last call.
  std::vector<Beat> take() {
    note({});
    return std::exchange(beats_, {});
  }

 private:
  struct Awaited final : Operation {
    Awaited(Metronome& m, size_t n) : metronome(m), number(n) {}
    bool advance() override { return wait(), true; }
    void wait() override { metronome.note({{}, number}); }
    void abandon(std::exception_ptr) noexcept override {}
    Metronome& metronome;
    size_t number;
  };
  Work start(Transfer t) override {
    (void)MetaComm::start(std::move(t));
    Ledger::Line all = ledger().total();
    note({{}, ++collectives_, all - sent_});
    sent_ = all;
    return Work(std::make_shared<Awaited>(*this, collectives_));
  }
  void note(Beat beat) {
    beat.work = meta_work() - done_;
    done_ = meta_work();
    beats_.push_back(beat);
  }
  std::vector<Beat> beats_;
  KernelWork done_ = meta_work();
  Ledger::Line sent_;
  size_t collectives_ = 0;
};

/// The ranks of cp, with a count of the attention that layers leave to them.
class CountedRows final : public nn::RowRanks {
 public:
  explicit CountedRows(const nn::RowRanks& ranks) : ranks_(ranks) {}
  int64_t count() const override { return ranks_.count(); }
  std::vector<nn::Span> spans(int64_t mine) const override { return ranks_.spans(mine); }
  void sum(const Tensor& x) const override { ranks_.sum(x); }
  Tensor attend(const Qkv& in, const AttentionShape& shape,
                const random::Mask& mask) const override {
    double before = meta_work().attention;
    Tensor y = ranks_.attend(in, shape, mask);
    flop_ += meta_work().attention - before;
    return y;
  }
  /// Returns the FLOP since the last call.
  double take() const { return std::exchange(flop_, 0); }

 private:
  const nn::RowRanks& ranks_;
  mutable double flop_ = 0;
};

/// The ranks of other axes, on the meta device.
class OtherRanks {
 public:
  explicit OtherRanks(const std::map<std::string, int>& sizes) {
    for (auto& [name, size] : sizes) all_.try_emplace(name, size, 0);
  }
  std::map<std::string, Communicator*, std::less<>> ranks() {
    std::map<std::string, Communicator*, std::less<>> found;
    for (auto& [name, comm] : all_) found[name] = &comm;
    return found;
  }
  Ledger::Line sent() const {
    Ledger::Line sum;
    for (auto& [name, comm] : all_) sum += comm.ledger().total();
    return sum;
  }

 private:
  std::map<std::string, MetaComm> all_;
};

/// Runs the layers of a model, on the meta device, and checks what they do.
class Walk {
 public:
  Walk(const Build& build, const nn::Batch& like, const ProbeOptions& o)
      : o_(o),
        ranks_(o.tp, 0),
        others_(o.others),
        tp_(ranks_, {.sequence = o.sequence_parallel,
                     .slices = {.count = o.slices},
                     .pieces = o.pieces,
                     .others = others_.ranks()}),
        model_(model_of(build, tp_)),
        row_ranks_(o.cp, 0),
        context_(o.rows && o.cp > 1 ? o.rows->rows(row_ranks_)
                                    : std::make_unique<ContextParallel>(row_ranks_, o.cp_form)),
        batch_(
            on_meta(o.rows && o.cp > 1 ? o.rows->share(like, o.cp, 0) : rows_of_rank(like, o.cp, 0),
                    o.dtype)),
        replicas_(o.dp),
        trains_(like.target.defined()),
        losses_(o.bitwise ? like.input.size(0) * o.row_parts : 1) {
    model_->materialize(meta_device, o.dtype, 0);
    apply_groups(*model_, o.groups);
    check_model();
    batch_.replicas = &replicas_;
    batch_.loss_seed = like.target.defined();
    batch_.row_parts = o.row_parts;
    if (o.cp > 1) batch_.rows = &counted_rows_;
    if (like.cache) batch_.cache = &past_.emplace(like.cache->capacity());
    if (trains_ && tp_.sequence())
      alone_ =
          probe(build, like,
                {.dp = o.dp, .cp = o.cp, .rows = o.rows, .cp_form = o.cp_form, .dtype = o.dtype})
              .layers();
    for (auto* p : model_->parameters()) {
      if (p->frozen) frozen_.push_back(p), p->value = p->value.detach();
      else
        on_grad(p->value, [this, p] {
          if (grad(p->value).defined()) reached_now_.push_back(p);  // a rule may return nothing
        });
    }
  }

  std::vector<LayerFacts> run() {
    for (auto& layer : model_->layers()) {
      if (x_.defined()) take_input();
      try {
        step(layer);
      } catch (const Error& e) {
        std::string with = x_.defined() ? " of " + str(x_) : "";
        auto code = e.code() == Exit::internal ? Exit::config : e.code();
        throw Error(code, fmt::format("layer {}{}: {}", layer.name, with, e.what()), e.place());
      } catch (...) {
        rethrow_from("layer " + layer.name);
      }
    }
    if (trains_) check_end();
    return std::move(found_);
  }

  nn::Sequence& model() { return *model_; }
  std::vector<Shape> inputs() const { return nn::input_shapes(batch_); }

 private:
  void check_model() {
    check_input(!model_->layers().empty(), Exit::config, "model: it has no layers; expected add()");
    check_shards(*model_, tp_);
    check_buffers(*model_);
    std::string averaged;  // a buffer of rounded sums; counts are exact
    for (auto* b : model_->buffers())
      if (!b->counts() && averaged.empty()) averaged = b->name;
    check_input(
        !o_.bitwise || averaged.empty(), Exit::config,
        "bitwise with a model that has buffers ({}), such as the statistics of batch norm\n"
        "  They are sums over samples in an order that depends on the mesh. Leave --bitwise "
        "out.",
        averaged);
    check_input(o_.cp == 1 || averaged.empty(), Exit::config,
                "cp={} with a model that has buffers ({}), such as the statistics of batch norm\n"
                "  They would be of some rows of each sample. Take --cp 1.",
                o_.cp, averaged);
  }

  /// Takes the output of the layer before as the input of the next.
  void take_input() {
    check_input(is_float(x_.dtype()), Exit::config,
                "layer {}: it returns {}; expected a floating-point activation, for a gradient\n"
                "  A layer reads integers, such as ids, from batch.input.",
                found_.back().name, x_);
    x_ = graph_input(x_.detach(), dx_);  // not a leaf, whose gradient would be kept in fp32
  }

  void step(const nn::Layer& layer) {
    bool last = &layer == &model_->layers().back();
    if (trains_ && last && !o_.bitwise) batch_.loss.seed = full({}, 1, f32, meta_device);
    // One object: its function may have state, such as a constant that the first call makes.
    nn::Layer run = checked(layer);
    if (o_.bitwise) run = by_sample(std::move(run), nn::input_shapes(batch_));
    Tensor y = measure(run);
    bool no_loss = last && y.numel() != losses_;
    check_input(!trains_ || reached_.empty() || no_loss || dx_->defined(), Exit::config,
                "no gradient reaches its input, so the layers before it would not be trained; "
                "expected what it returns to depend on x, without detach()");
    reached_.insert(reached_now_.begin(), reached_now_.end());
    note_frozen(run);
    check_uses(layer, reached_now_);
    used_.insert(reached_now_.begin(), reached_now_.end());
    reached_now_.clear();
    if (trains_) check_keeps_nothing(run, x_, batch_);
    if (o_.cp > 1 && layer.selective) {
      (void)counted_rows_.take();
      double before = meta_work().attention;
      (void)layer.selective(x_, batch_);
      check_attends_over_ranks(meta_work().attention - before);
    }
    if (!last && !used_by(layer).empty()) check_rows(found_, alone_, o_.tp);
    x_ = y, *dx_ = {};
  }

  /// Notes which frozen parameters a call uses: it makes them leaves for it, as no gradient tells.
  void note_frozen(const nn::Layer& layer) {
    if (frozen_.empty()) return;
    for (auto* p : frozen_) require_grad(p->value);
    NoGrad guard;
    autograd::Touched touched;
    layer.run(x_, batch_);
    for (auto* p : frozen_) {
      auto is_it = [&](const Tensor& leaf) { return leaf.is(p->value); };
      if (std::ranges::any_of(touched.leaves(), is_it)) reached_now_.push_back(p);
      p->value = p->value.detach();
    }
  }

  /// Runs forward and backward. Returns the layer's output.
  Tensor measure(const nn::Layer& layer) {
    auto sent = [&] { return ranks_.ledger().total(); };
    KernelWork start = meta_work();
    Ledger::Line sent_before = sent();
    auto passed = [&] { return row_ranks_.ledger().total(); };
    auto to_experts = [&] { return others_.sent(); };
    Ledger::Line passed_before = passed(), experts_before = to_experts();
    (void)ranks_.take(), (void)counted_rows_.take();
    Tensor y = layer.run(x_, batch_);
    KernelWork forward = meta_work() - start;
    Ledger::Line passed_forward = passed(), experts_forward = to_experts();
    check_attends_over_ranks(forward.attention);
    Ledger::Line sent_forward = sent();
    auto forward_beats = ranks_.take();
    Tensor dy = zeros(y.shape(), y.dtype(), y.device());
    start = meta_work();
    if (requires_grad(y)) backward(without_values(y), std::move(dy));
    LayerFacts facts{.name = layer.name,
                     .forward = forward,
                     .backward = meta_work() - start,
                     .out = {y.shape(), y.dtype()},
                     .tp_forward = sent_forward - sent_before,
                     .tp_backward = sent() - sent_forward,
                     .cp_forward = passed_forward - passed_before,
                     .cp_backward = passed() - passed_forward,
                     .ep_forward = experts_forward - experts_before,
                     .ep_backward = to_experts() - experts_forward,
                     .forward_beats = std::move(forward_beats),
                     .backward_beats = ranks_.take(),
                     .selective = bool(layer.selective)};
    for (auto* p : used_by(layer)) {
      facts.parameters.add(*p, p->value.numel());
      if (!counted_.insert(p).second) facts.shared.add(*p, p->value.numel());
    }
    found_.push_back(std::move(facts));
    return y;
  }

  /// Checks that the last run attended, with so much work, over the rows of all ranks.
  void check_attends_over_ranks(double attention) const {
    check_input(o_.cp == 1 || attention <= counted_rows_.take(), Exit::config,
                "cp={}, and it attends to this rank's rows alone, 1/{} of each sample\n"
                "  Attend by nn::attend(layer, batch, ..), or take --cp 1.",
                o_.cp, o_.cp);
  }

  void check_end() {
    check_input(
        x_.numel() == losses_, Exit::config,
        "model: its last layer, {}, returns {}; expected the sum of the loss, one element{}",
        found_.back().name, x_,
        o_.row_parts == 1 ? "" : fmt::format(" for each of {} row parts", o_.row_parts));
    check_gradients(*model_, used_);
  }

  const ProbeOptions& o_;
  Metronome ranks_;
  OtherRanks others_;
  TensorParallel tp_;
  std::unique_ptr<nn::Sequence> model_;
  MetaComm row_ranks_;
  std::unique_ptr<nn::RowRanks> context_;
  CountedRows counted_rows_{*context_};
  nn::Batch batch_;
  AbsentReplicas replicas_;
  std::optional<nn::KeyValueCache> past_;  // the probe's own: the run's has values
  bool trains_;
  int64_t losses_;
  std::vector<LayerFacts> alone_;  // with tp=1, where sequence parallelism must differ
  std::vector<LayerFacts> found_;
  Parameters reached_, used_, counted_;  // used_: frozen ones too
  std::vector<nn::Parameter*> frozen_;
  std::vector<nn::Parameter*> reached_now_;  // by this layer
  Tensor x_;
  std::shared_ptr<Tensor> dx_ = std::make_shared<Tensor>();
};

}  // namespace

std::unique_ptr<nn::Sequence> model_of(const Build& build, const TensorParallel& tp) try {
  auto model = build(tp);
  check_input(model != nullptr, Exit::config, "build: it returned no model; expected a Sequence");
  return model;
} catch (const Error&) {
  throw;  // it names its place
} catch (...) {
  rethrow_from("build");
}

double LayerFacts::cost() const {
  // A FLOP and a kernel launch, as the bytes moved in the same time.
  constexpr double flop_per_byte = 8, kernel_cost = 2000;
  return (forward.products + backward.products) / flop_per_byte + forward.bytes + backward.bytes +
         kernel_cost * double(forward.kernels + backward.kernels);
}

int64_t Facts::rows_of_sample() const {
  int64_t rows = layers_.front().out.shape.rank() > 0 ? layers_.front().out.shape[0] : 0;
  for (size_t i = 1; i + 1 < layers_.size(); ++i)
    if (layers_[i].out.shape.rank() == 0 || layers_[i].out.shape[0] != rows) return 0;
  rows *= options_.cp;
  return rows * (options_.sequence_parallel ? options_.tp : 1) / std::max<int64_t>(1, samples());
}

const LayerFacts& Facts::of(const std::string& layer) const {
  auto found = std::ranges::find(layers_, layer, &LayerFacts::name);
  check(found != layers_.end(), "probe: no layer {}", layer);
  return *found;
}

Boundaries Facts::boundaries(const std::vector<int64_t>& counts) const {
  Boundaries all;
  int64_t end = 0;
  for (int64_t count : counts) {
    end += count;
    all.push_back(end > 0 ? layers_[size_t(end - 1)].out : Boundary{});
  }
  all.pop_back();
  return all;
}

Facts probe(const Build& build, const nn::Batch& like, const ProbeOptions& o) {
  memory::OwnCounter counter;  // else its peak, of the whole model, would be the run's
  Walk walk(build, like, o);
  Facts facts;
  facts.options_ = o;
  facts.inputs_ = walk.inputs();
  auto all = walk.model().parameters();
  for (auto* b : walk.model().buffers())
    facts.parameters_ += fmt::format("{} {}\n", b->name, b->shape);
  for (auto* p : all) facts.parameters_ += fmt::format("{} {}\n", p->name, p->full);
  facts.layers_ = walk.run();
  facts.shared_ = shared_by(walk.model().layers(), all);
  return facts;
}

}  // namespace triax::parallel
