#include "triax/parallel/train/step/replica.h"

#include "triax/autograd/backward.h"
#include "triax/core/check.h"
#include "triax/core/meta/meta.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/options/groups.h"

namespace triax::parallel {
namespace {

/// Returns a layer whose errors name it.
nn::Layer::Run named(const nn::Layer& layer) {
  return [plain = layer.run, name = layer.name](const Tensor& x, const nn::Batch& batch) {
    try {
      return plain(x, batch);
    } catch (...) {
      rethrow_from("layer " + name);
    }
  };
}

nn::Layer::Run recomputed(nn::Layer::Run plain, const Packing& packing) {
  return [plain = std::move(plain), packing](const Tensor& x, const nn::Batch& batch) {
    return recompute([plain, batch](const Tensor& input) { return plain(input, batch); }, x,
                     packing);
  };
}

nn::Layer::Run observed(const nn::Layer& layer, const LayerObserver& observer) {
  return [plain = layer.run, name = layer.name, observer](const Tensor& x, const nn::Batch& batch) {
    Tensor y = plain(x, batch);
    observer(name, y, batch);
    return y;
  };
}

/// Returns the kind of device that the ranks of `comm` have, or are rehearsed for.
Device::Kind kind_of(const Communicator& comm) {
  Device::Kind kind = comm.device().kind;
  return kind == Device::Kind::meta ? MetaTarget::kind() : kind;
}

/// Returns the ranks of other axes that split layers ask for.
std::map<std::string, int> other_axes(const MeshShape& mesh) {
  std::map<std::string, int> sizes;
  for (const Axis& a : mesh.axes())
    if (any(a.cuts, Cuts::features | Cuts::experts) && a.name != "tp" &&
        (a.name != "ep" || a.size > 1))
      sizes[a.name] = a.size;
  return sizes;
}

std::map<std::string, Communicator*, std::less<>> other_ranks(Mesh& mesh) {
  std::map<std::string, Communicator*, std::less<>> all;
  for (auto& [name, size] : other_axes(mesh.shape())) all[name] = &mesh.over({name});
  return all;
}

/// Returns the ranks that have other rows of the same samples.
Communicator& row_ranks(Mesh& mesh, const StepOptions& o) {
  auto own = o.own_rows();
  return own ? mesh.over({own->name}) : mesh.cp();
}

std::unique_ptr<nn::RowRanks> rows_of(Mesh& mesh, const StepOptions& o, const ExactRows& exact) {
  auto own = o.own_rows();
  if (own) return own->rows(row_ranks(mesh, o));
  return std::make_unique<ContextParallel>(mesh.cp(), o.cp_form, exact);
}

}  // namespace

ProbeOptions probe_options(const StepOptions& o) {
  return {.dp = o.mesh.replicas(),
          .tp = o.mesh.tp,
          .cp = o.mesh.ranks_along(Cuts::rows),
          .rows = o.own_rows(),
          .others = other_axes(o.mesh),
          .cp_form = o.cp_form,
          .sequence_parallel = o.sequence_parallel,
          .dtype = o.dtype,
          .row_parts = int(o.row_parts_here()),
          .slices = o.tp_slices,
          .pieces = o.tp_pieces,
          .bitwise = o.bitwise,
          .groups = o.groups};
}

StepOptions inference_options(const MeshShape& mesh, DType dtype) {
  return {.mesh = mesh,
          .chunks = 1,
          .micro_batch = 1,
          .global_batch = mesh.replicas(),
          .dtype = dtype,
          .purpose = nn::Purpose::inference};
}

Replica::Replica(Mesh& mesh, const Build& build, const StepOptions& o, Facts facts,
                 const LayerObserver& observer)
    : options_(o),
      mesh_(mesh),
      build_(build),
      slices_{.count = o.tp_slices},
      tp_(mesh.tp(), {.sequence = o.sequence_parallel,
                      .slices = slices_,
                      .pieces = o.tp_pieces,
                      .others = other_ranks(mesh)}),
      facts_(std::move(facts)),
      counts_(place(facts_, o)),
      model_(model_of(build, tp_)),
      chunks_(layers_of_stage(prepared(observer), counts_, o.pipeline(), mesh.pp().rank())),
      data_(*model_, chunks_, mesh,
            {.dtype = o.dtype,
             .seed = uint64_t(o.seed),
             .zero = o.zero,
             .offload = o.place_of(Offloaded::parameters),
             .layers = o.places,
             .buckets = BucketSizes::on(kind_of(mesh.data()), mesh.data().size()),
             .purpose = o.purpose,
             .tune = [groups = o.groups](auto& model) { apply_groups(model, groups); },
             .bitwise = o.bitwise,
             .samples = o.micro_batch,
             .row_parts = o.row_parts_here(),
             .reduce_dtype = o.reduce_dtype,
             .replicated = o.replicated(),
             .ties = o.pipeline().last_stage() == 0 ? DataParallelOptions::Ties::first
                                                    : DataParallelOptions::Ties::both_ends}),
      buffers_(chunks_, mesh),
      replicas_(mesh.dp()),
      exact_rows_{o.bitwise && o.cp_form == ContextForm::gather ? o.row_parts_here() : 0},
      rows_(rows_of(mesh, o, exact_rows_)),
      row_place_(row_ranks(mesh, o).rank()),
      pipeline_(
          mesh, chunks_,
          {.schedule = o.schedules.at(o.schedule), .boundaries = facts_.boundaries(counts_)}) {
  check(facts_.options() == probe_options(o), "replica: facts of another mesh or precision");
}

/// Returns this run's layers. The first keeps no activation but its output, which is the second's
/// input; the last's backward mostly follows its forward at once: neither is recomputed.
nn::Layers Replica::prepared(const LayerObserver& observer) const {
  nn::Layers layers = model_->layers();
  bool selects = false;
  for (size_t i = 0; i < layers.size(); ++i) {
    auto& layer = layers[i];
    if (options_.recompute == Recompute::selective && layer.selective)
      layer.run = layer.selective, selects = true;
    layer.run = named(layer);
    if (options_.bitwise) layer.run = apart(layer.run);
    if (tp_.sliced() || options_.row_parts > 1) layer.run = rows_alike(layer.run);
    if (options_.recompute >= Recompute::block && i > 0 && i + 1 < layers.size())
      layer.run = recomputed(
          layer.run, options_.recompute == Recompute::block_split ? tp_.split() : Packing{});
    bool cuts = options_.bitwise && options_.micro_batch > 1;
    if (observer) layer.run = observed(layer, cuts ? each_sample(observer) : observer);
    layer.reads_batch |= bool(observer);  // the observer places rows by the batch
    if (cuts) layer = by_sample(std::move(layer), facts_.inputs());
  }
  check_input(options_.recompute != Recompute::selective || selects, Exit::config,
              "recompute=selective with a model whose layers offer nothing to select\n"
              "  Valid: off, block, block-split.");
  return layers;
}

Tensor Replica::no_loss() const {
  return zeros({options_.bitwise ? WideSum::words : 1}, f64, mesh_.world().device());
}

void Replica::add_loss(const Tensor& one, const Tensor& sum) const {
  Tensor more = one.detach().view({one.numel()});
  if (options_.bitwise) {
    std::vector<double> words(WideSum::words);
    for (double loss : more.to(f64).to_host<double>()) WideSum::add(loss, words.data());
    more = from_host(words, {WideSum::words}, sum.device());
  }
  backend(sum).accumulate(more, sum);
}

PipelineRun Replica::collect(const Tensor& loss, int64_t micros, const Batches& batches) const {
  return {.micros = int(micros),
          .batch =
              [&batches, device = loss.device(), this](int micro) {
                nn::Batch batch =
                    nn::to(options_.share(batches(micro), row_place_), device, options_.dtype);
                batch.replicas = &replicas_;
                if (rows_->count() > 1 || exact_rows_.parts > 0) batch.rows = rows_.get();
                batch.row_parts = options_.row_parts_here();
                return batch;
              },
          .output = [loss, this](int, const Tensor& one) { add_loss(one, loss); }};
}

Tensor Replica::forward_backward(const Batches& batches, const Seed& seed, Watch watch) {
  Tensor loss = no_loss();
  auto run = collect(loss, options_.accumulation(), batches);
  run.seed = seed.loss_scale / seed.weight;
  slices_.set_seed(run.seed);
  exact_rows_.set_seed(run.seed, options_.row_parts);
  data_.begin(run.micros, watch, seed.loss_scale);
  buffers_.begin();
  try {
    pipeline_.train(run);
    data_.finish();
  } catch (const Error& e) {
    bool in_order = options_.zero >= Zero::gradients && mesh_.data().size() > 1;
    if (e.code() != Exit::mismatch || !in_order) throw;
    throw e.saying(std::string(e.what()) + if_modules_are_left_out);
  }
  return loss;
}

Tensor Replica::evaluate(const Batches& batches, int64_t micros) {
  Tensor loss = no_loss();
  auto run = collect(loss, micros, batches);
  run.batch = [training = run.batch](int micro) {
    nn::Batch batch = training(micro);
    batch.first = nn::evaluation;
    return batch;
  };
  pipeline_.infer(run);
  return loss;
}

}  // namespace triax::parallel
