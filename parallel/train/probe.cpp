#include "parallel/train/probe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "autograd/backward.h"
#include "core/check.h"
#include "core/own_counter.h"
#include "nn/key_value_cache.h"
#include "parallel/comm/meta_comm.h"
#include "parallel/comm/together.h"
#include "parallel/train/by_sample.h"

namespace triax::parallel {
namespace {

/// A micro-batch like `b` on the meta device, as a step gives it to layers: shapes without values.
nn::Batch on_meta(nn::Batch b, DType dtype) {
  auto shape_of = [&](const Tensor& x) {
    if (!x.defined()) return x;
    return empty(x.shape(), is_float(x.dtype()) ? dtype : x.dtype(), meta_device);
  };
  b.input = shape_of(b.input), b.target = shape_of(b.target);
  return b;
}

/// Stands in for the dp ranks during a probe: tensors on the meta device have no values to sum.
struct AbsentReplicas : nn::Replicas {
  int64_t of = 1;
  explicit AbsentReplicas(int64_t count) : of(count) {}
  int64_t count() const override { return of; }
  void sum(const Tensor&, int64_t) const override {}
};

/// Each layer accumulates once a micro-batch: a buffer is one layer's, on one stage.
void check_buffers(nn::Sequence& model) {
  std::map<nn::Buffer*, const nn::Layer*> used;
  for (auto& layer : model.layers())
    for (auto* module : layer.uses)
      for (auto* b : module->buffers()) {
        const nn::Layer* first = used.try_emplace(b, &layer).first->second;
        check_input(first == &layer, Exit::config,
                    "layer {}: it uses {}, as layer {} does; expected one layer for a module with "
                    "buffers",
                    layer.name, b->name, first->name);
      }
  for (auto* b : model.buffers())
    check_input(used.contains(b), Exit::config,
                "buffer {}: no layer of the model uses it; expected its module in an add()",
                b->name);
}

/// Without it every rank would train a whole of its own on its own rows, or never sum gradients.
void check_shards(nn::Module& model, const TensorParallel& tp) {
  if (tp.size() == 1) return;
  for (auto* p : model.parameters()) {
    bool sliced = p->shard.length >= 0;
    check_input(sliced || (p->shard.replicated && p->shard.partial >= tp.sequence()), Exit::config,
                "parameter {}: all {} tensor-parallel ranks hold the whole of it, and it does not "
                "say so; its gradient would be wrong\n"
                "  Make its layer with .shard = tp.whole(), or take the layer of parallel/tensor.",
                p->name, tp.size());
  }
}

using Parameters = std::set<nn::Parameter*>;

Parameters used_by(const nn::Layer& layer) {
  Parameters used;
  for (auto* module : layer.uses)
    for (auto* p : module->parameters()) used.insert(p);
  return used;
}

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

/// `now`: what the backward of `layer` has reached. A layer that is alone on its stage, or with
/// ZeRO-3, has only the parameters of `uses`.
void check_uses(const nn::Layer& layer, const std::vector<nn::Parameter*>& now) {
  Parameters used = used_by(layer);
  for (auto* p : now) {
    grad(p->value) = {};
    check_input(used.contains(p), Exit::config,
                "it uses parameter {}; expected its module in the layer's `uses`, the list in "
                "add(\"{}\", {{...}}, ...)",
                p->name, layer.name);
  }
}

/// After a backward over all layers.
void check_gradients(nn::Sequence& model, const Parameters& reached) {
  Parameters used;
  for (auto& layer : model.layers()) used.merge(used_by(layer));
  for (auto* p : model.parameters()) {
    check_input(used.contains(p), Exit::config,
                "parameter {}: no layer of the model uses it; expected its module in an add()",
                p->name);
    check_input(reached.contains(p), Exit::config,
                "parameter {}: no gradient reaches it; expected its layer to use it in what it "
                "returns",
                p->name);
  }
}

/// Sequence parallelism sums the ranks' gradients, so parameters must see each rank's own rows. The
/// last of `layers` is as `alone`, the same model's with tp=1, if every rank has all rows.
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

/// `run` is a layer that ran before, so that constants it makes once are there. What it makes and
/// still holds after this call is of a micro-batch: with a pipeline, or recomputed, another layer
/// or call would find it of another.
void check_keeps_nothing(const nn::Layer& layer, const Tensor& x, nn::Batch batch,
                         const ProbeOptions& o) {
  memory::OwnCounter made;
  {
    NoGrad guard;
    batch = on_meta(std::move(batch), o.dtype);
    layer.run(x.defined() ? empty(x.shape(), x.dtype(), meta_device) : x, batch);
    batch = {};
  }
  check_input(
      memory::counter()->live() == 0, Exit::config,
      "it keeps {} bytes of this micro-batch after its call; expected none: with pipeline "
      "parallelism others would see them of another micro-batch\n"
      "  Return what a later layer needs as further columns of x, make a constant once, and "
      "declare what lasts as buffer() or parameter().",
      memory::counter()->live());
}

}  // namespace

std::unique_ptr<nn::Sequence> model_of(const Build& build, const TensorParallel& tp) try {
  auto model = build(tp);
  check_input(model != nullptr, Exit::config, "build: it returned no model; expected a Sequence");
  return model;
} catch (const Error&) {
  throw;  // names its place
} catch (...) {
  rethrow_from("build");
}

double LayerFacts::cost() const {
  // FLOP and a kernel launch as bytes moved in the same time.
  constexpr double flop_per_byte = 8, kernel_cost = 2000;
  return (forward.products + backward.products) / flop_per_byte + forward.bytes + backward.bytes +
         kernel_cost * double(forward.kernels + backward.kernels);
}

int64_t Facts::rows_of_sample() const {
  int64_t rows = layers_.front().out.shape.rank() > 0 ? layers_.front().out.shape[0] : 0;
  for (size_t i = 1; i + 1 < layers_.size(); ++i)
    if (layers_[i].out.shape.rank() == 0 || layers_[i].out.shape[0] != rows) return 0;
  return rows * (options_.sequence_parallel ? options_.tp : 1) / std::max<int64_t>(1, samples_);
}

const LayerFacts& Facts::of(const std::string& layer) const {
  auto found =
      std::find_if(layers_.begin(), layers_.end(), [&](auto& f) { return f.name == layer; });
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
  memory::OwnCounter counter;  // or its peak, of the whole model, would be the run's
  MetaComm ranks(o.tp, 0);
  TensorParallel tp(ranks, {.sequence = o.sequence_parallel, .slices = {.count = o.slices}});
  auto model = model_of(build, tp);
  model->materialize(meta_device, o.dtype, 0);
  check_shards(*model, tp);
  check_buffers(*model);
  check_input(!o.bitwise || model->buffers().empty(), Exit::config,
              "bitwise with a model that has buffers ({}), such as the statistics of batch norm\n"
              "  They are sums over samples in an order that depends on the mesh. Leave --bitwise "
              "out.",
              model->buffers().empty() ? "" : model->buffers()[0]->name);
  nn::Batch batch = on_meta(like, o.dtype);
  AbsentReplicas replicas(o.dp);
  batch.replicas = &replicas;
  std::optional<nn::KeyValueCache> past;  // of its own: the run's has values
  if (like.cache) batch.cache = &past.emplace(like.cache->capacity());
  Facts facts;
  facts.options_ = o;
  facts.samples_ = like.input.size(0);
  for (auto* b : model->buffers()) facts.parameters_ += fmt::format("{} {}\n", b->name, b->shape);
  const std::vector<nn::Parameter*> all = model->parameters();
  for (auto* p : all) facts.parameters_ += fmt::format("{} {}\n", p->name, p->full);
  check_input(!model->layers().empty(), Exit::config, "model: it has no layers; expected add()");
  bool trains = like.target.defined();
  int64_t losses = o.bitwise ? facts.samples_ : 1;
  std::vector<LayerFacts> alone;
  if (trains && tp.sequence()) alone = probe(build, like, {.dp = o.dp, .dtype = o.dtype}).layers_;
  Parameters reached, counted;
  std::vector<nn::Parameter*> now;  // reached by the layer at hand
  for (auto* p : all) on_grad(p->value, [&now, p] { now.push_back(p); });
  Tensor x;
  auto dx = std::make_shared<Tensor>();
  for (auto& layer : model->layers()) {
    if (x.defined()) {
      check_input(is_float(x.dtype()), Exit::config,
                  "layer {}: it returns {}; expected a floating-point activation, for a gradient\n"
                  "  A layer reads integers, such as ids, from batch.input.",
                  facts.layers_.back().name, x);
      x = graph_input(x.detach(), dx);  // not a leaf, whose gradient would be kept in fp32
    }
    try {
      bool last = &layer == &model->layers().back();
      if (trains && last && !o.bitwise) batch.seed = full({}, 1, f32, meta_device);
      auto sent = [&] { return ranks.ledger().total(); };
      KernelWork start = meta_work();
      Ledger::Line sent_before = sent();
      Tensor y = (o.bitwise ? by_sample(layer) : layer).run(x, batch);
      KernelWork forward = meta_work() - start;
      Ledger::Line sent_forward = sent();
      Tensor dy = zeros(y.shape(), y.dtype(), y.device());
      start = meta_work();
      if (requires_grad(y)) backward(without_values(y), std::move(dy));
      KernelWork back = meta_work() - start;
      int64_t parameters = 0, shared = 0;
      for (auto* p : used_by(layer)) {
        parameters += p->value.numel();
        if (!counted.insert(p).second) shared += p->value.numel();
      }
      facts.layers_.push_back({layer.name,
                               forward,
                               back,
                               {y.shape(), y.dtype()},
                               sent_forward - sent_before,
                               sent() - sent_forward,
                               parameters,
                               shared,
                               bool(layer.selective)});
      bool no_loss = last && y.numel() != losses;
      check_input(!trains || reached.empty() || no_loss || dx->defined(), Exit::config,
                  "no gradient reaches its input, so the layers before it would not be trained; "
                  "expected what it returns to depend on x, without detach()");
      check_uses(layer, now);
      reached.insert(now.begin(), now.end());
      now.clear();
      if (trains) check_keeps_nothing(layer, x, batch, o);
      if (!last && !used_by(layer).empty()) check_rows(facts.layers_, alone, o.tp);
      x = y, *dx = {};
    } catch (const Error& e) {
      std::string with = x.defined() ? " of " + str(x) : "";
      auto code = e.code() == Exit::internal ? Exit::config : e.code();
      throw Error(code, fmt::format("layer {}{}: {}", layer.name, with, e.what()), e.place());
    } catch (...) {
      rethrow_from("layer " + layer.name);
    }
  }
  facts.shared_ = shared_by(model->layers(), all);
  if (trains) {
    check_input(x.numel() == losses, Exit::config,
                "model: its last layer, {}, returns {}; expected the sum of the loss, one element",
                facts.layers_.back().name, x);
    check_gradients(*model, reached);
  }
  return facts;
}

}  // namespace triax::parallel
