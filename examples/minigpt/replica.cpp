#include "examples/minigpt/replica.h"

#include <algorithm>

#include "core/check.h"
#include "examples/minigpt/precision.h"
#include "parallel/pipeline/partition.h"

namespace triax::minigpt {
namespace {

parallel::PipelineShape shape_of(const TrainConfig& c) {
  return {int(c.mesh.pp), int(c.mesh.chunks), int(c.accumulation())};
}

parallel::PipelineOptions options(const TrainConfig& c, const parallel::TensorParallel& tp) {
  return {.schedule = parallel::schedule_named(c.mesh.schedule),
          .boundary = {tp.rows(c.micro_batch * c.model.context), c.model.width},
          .dtype = dtype_of(c.precision)};
}

/// One sequence, as long as the context, on this mesh.
TrainConfig sampled(const ModelConfig& model, const std::string& precision,
                    const parallel::MeshShape& s) {
  TrainConfig c{.model = model, .micro_batch = 1, .global_batch = s.dp, .precision = precision};
  c.mesh = {.dp = s.dp, .pp = s.pp, .tp = s.tp, .chunks = 1};
  return c;
}

nn::Layers observed(nn::Layers layers, const Observer& observer) {
  if (observer)
    for (auto& layer : layers)
      layer.run = [layer, observer](const Tensor& x, const nn::Batch& batch) {
        Tensor y = layer.run(x, batch);
        observer(layer.name, y, batch);
        return y;
      };
  return layers;
}

}  // namespace

std::vector<int64_t> placement(const TrainConfig& c, const nn::Layers& layers) {
  auto shape = shape_of(c);
  if (!c.mesh.placement.empty()) {
    auto counts = parallel::parse_placement(c.mesh.placement, shape, c.model.layers);
    ++counts.front();  // the embedding
    ++counts.back();   // the head
    return counts;
  }
  check_input(shape.virtual_stages() <= std::ssize(layers), Exit::config,
              "pp={} x chunks={} = {} pieces of a model of {} layers\n"
              "  Embedding, blocks and head are its layers. Valid pp x chunks: 1 to {}.",
              c.mesh.pp, c.mesh.chunks, shape.virtual_stages(), layers.size(), layers.size());
  std::vector<double> costs;
  for (auto& layer : layers) costs.push_back(layer.cost);
  return parallel::partition(costs, shape.virtual_stages());
}

Replica::Replica(const TrainConfig& c, parallel::Mesh& mesh, const Observer& observer)
    : Replica(c, mesh, nn::Purpose::training, observer) {}

Replica::Replica(const ModelConfig& model, const std::string& precision, parallel::Mesh& mesh)
    : Replica(sampled(model, precision, mesh.shape()), mesh, nn::Purpose::inference, {}) {}

Replica::Replica(const TrainConfig& c, parallel::Mesh& mesh, nn::Purpose purpose,
                 const Observer& observer)
    : config_(c),
      pp_(mesh.pp()),
      tp_(mesh.tp(), {.sequence = c.mesh.sequence_parallel}),
      model_(c.model, tp_),
      chunks_(
          parallel::layers_of_stage(observed(model_.layers(recompute_of(c.recompute)), observer),
                                    placement(c, model_.layers()), shape_of(c), mesh.pp().rank())),
      data_(model_, chunks_, mesh,
            {.dtype = dtype_of(c.precision),
             .seed = uint64_t(c.seed),
             .zero = parallel::Zero(c.mesh.zero),
             .purpose = purpose}),
      pipeline_(mesh, chunks_, options(c, tp_)) {}

/// The ranks of a tensor-parallel group all see the loss; the first reports it.
parallel::PipelineRun Replica::collect(const Tensor& loss, int64_t micros,
                                       const std::function<nn::Batch(int64_t)>& batch) const {
  return {.micros = int(micros),
          .batch =
              [&batch, device = pp_.device()](int m) {
                nn::Batch b = batch(m);
                b.ids = b.ids.to(device), b.targets = b.targets.to(device);
                return b;
              },
          .output =
              [loss, this](int, const Tensor& sum) {
                if (tp_.rank() == 0) backend(loss).accumulate(sum.detach().view({1}), loss);
              }};
}

Tensor Replica::step(const std::function<nn::Batch(int64_t)>& batch, double seed, Watch watch) {
  Tensor loss = zeros({1}, f64, pp_.device());
  auto run = collect(loss, config_.accumulation(), batch);
  run.seed = seed;
  data_.begin(run.micros, watch);
  pipeline_.train(run);
  data_.finish();
  return loss;
}

Tensor Replica::evaluate(int64_t micros, const std::function<nn::Batch(int64_t)>& batch) {
  Tensor loss = zeros({1}, f64, pp_.device());
  pipeline_.infer(collect(loss, micros, batch));
  return loss;
}

Tensor Replica::logits(const nn::Batch& batch) {
  int64_t rows = batch.ids.numel();
  Tensor all = empty({rows, config_.model.vocab}, dtype_of(config_.precision), pp_.device());
  pipeline_.infer({.batch = [&](int) { return batch; },
                   .output = [&](int, const Tensor& y) { copy_(all, y.detach()); },
                   .rows = tp_.rows(rows)});
  pp_.broadcast(all, pp_.size() - 1).wait();
  return all;
}

}  // namespace triax::minigpt
