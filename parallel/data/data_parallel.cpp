#include "triax/parallel/data/data_parallel.h"

#include <algorithm>
#include <numeric>

#include "triax/core/check.h"
#include "triax/parallel/data/held_once.h"

namespace triax::parallel {

DataParallel::DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options)
    : model_{.dp = dp, .all = &dp, .options = options} {
  check_input(options.zero != Zero::parameters, Exit::config,
              "data parallel: ZeRO-3 gathers layer by layer; expected a model given as layers");
  std::vector<nn::Layers> whole;
  build(model, whole);
}

DataParallel::DataParallel(nn::Module& model, std::vector<nn::Layers>& chunks, Mesh& mesh,
                           const DataParallelOptions& options)
    : model_{.dp = mesh.data(), .options = options} {
  model_.join(mesh);
  if (options.ties == DataParallelOptions::Ties::both_ends) model_.ends = &mesh.ends();
  build(model, chunks);
  check_held_once(model_, mesh.pp());
}

void DataParallel::build(nn::Module& model, std::vector<nn::Layers>& chunks) {
  const DataParallelOptions& options = model_.options;
  DType sent = options.reduce_dtype;
  check_input(sent == f32 || (sent == bf16 && !options.bitwise), Exit::config,
              "data parallel: gradients sent in {}{}; expected f32 or bf16, and f32 with bitwise",
              name(sent), options.bitwise ? " with bitwise" : "");
  model_.declared = model.parameters();
  for (auto* p : model_.declared) (void)model_.over(*p);  // all ranks make all groups alike
  model.bind(options.seed);
  if (options.tune) options.tune(model);
  if (!model_.tp) check_same_model(model_);  // the trainer compares the model of a mesh
  auto frozen = [](auto* p) { return p->frozen; };
  bool trains = options.purpose == nn::Purpose::training && !model_.declared.empty();
  check_input(!trains || !std::ranges::all_of(model_.declared, frozen), Exit::config,
              "data parallel: all {} parameters are frozen, by the model or by "
              "--groups; expected one to train",
              model_.declared.size());
  bool layered = options.zero == Zero::parameters;
  auto groups = group(model, chunks, layered ? Grouping::by_layer : Grouping::by_chunk,
                      [this](auto& p) { return &model_.over(p); });
  auto layouts = lay_out(groups, options.buckets, options.zero == Zero::off ? 1 : model_.dp.size());
  model_.trained_buckets =
      size_t(std::ranges::count_if(layouts, [](auto& l) { return !l.frozen(); }));
  slices_.place(layouts, chunks);
  for (auto& l : layouts) add_bucket(l);
  if (layered)
    for (auto& chunk : chunks) gathered_.surround(chunk);
  else if (model_.cuts(false))
    for (auto& chunk : chunks) gathered_.await(chunk);
  has_layers_ = !chunks.empty();
}

void DataParallel::add_bucket(const BucketLayout& layout) {
  auto b = std::make_unique<Bucket>(layout);
  b->over = &model_.over(*layout.pieces[0].parameter);
  make_weights(*b);
  if (model_.options.purpose == nn::Purpose::training && !layout.frozen()) sums_.make(*b);
  for (size_t i = 0; i < layout.pieces.size(); ++i)
    sums_.hook(*b, i, [this](const Bucket& at, size_t piece) { norm_.look_at(at, piece); });
  slots_.cut(*b);
  model_.buckets.push_back(std::move(b));
}

/// Fills weights bucket by bucket, so that ZeRO-3 never holds the whole model.
void DataParallel::make_weights(Bucket& b) const {
  const BucketLayout& layout = b.layout;
  const DataParallelOptions& options = model_.options;
  Communicator& dp = *b.over;
  bool cut = model_.cuts(layout.frozen());
  int64_t slice = cut ? layout.length / dp.size() : layout.length;
  b.my_first = cut ? dp.rank() * slice : 0;
  memory::Scope scope(memory::parameters);
  // Weights that move between ranks lie where the transport needs no copies.
  b.weight = cut ? dp.empty({layout.length}, options.dtype)
                 : empty({layout.length}, options.dtype, dp.device());
  fill_(b.weight, 0);
  if (options.purpose == nn::Purpose::training)
    for (auto& [p, begin, length, first] : layout.pieces)
      p->fill(b.weight.narrow(0, begin, length).view(p->local()));
  b.my_weight = b.weight.narrow(0, b.my_first, slice);
  if (options.zero != Zero::parameters) return;
  Tensor values = b.my_weight;
  b.my_weight = slices_.make(b, options.dtype, layout.record);
  slices_.write_weight(b, values);
  b.weight.storage()->release();
}

void DataParallel::begin(int64_t micros, Watch watch, double scale) {
  sums_.begin(micros, scale);
  norm_.begin(watch);
}

/// Sums a bucket's gradients over further ranks, when those over dp are complete.
void DataParallel::sum_over(Communicator& ranks, Bucket& b) const {
  if (ranks.size() == 1) return;
  auto held = b.my_sums.storage()->hold(Access::write);
  Tensor grad = b.my_sums.to(model_.dp.device());
  ranks.all_reduce(grad).wait();
  if (!grad.is(b.my_sums)) copy_(b.my_sums, grad);
}

void DataParallel::finish() {
  await_weights();  // also those that no layer has used
  sums_.finish();
  if (model_.options.zero == Zero::parameters) gathered_.end_step();
  split_.sum_parts();
  for (auto& b : model_.trained()) {
    for (auto& copy : model_.copies)
      if (model_.options.replicated.contains(copy.name)) sum_over(*copy.ranks, *b);
    if (model_.ends && b->layout.pieces[0].parameter->tied) sum_over(*model_.ends, *b);
  }
  if (model_.options.bitwise)
    for (auto& b : model_.trained()) slices_.round_sums(*b);
}

void DataParallel::publish() {
  if (model_.options.zero != Zero::optimizer && model_.options.zero != Zero::gradients) return;
  await_weights();
  auto trained = model_.trained();
  for (size_t i = trained.size(); i-- > 0;)  // first what the first layers use
    trained[i]->gathering = trained[i]->over->all_gather(trained[i]->my_weight, trained[i]->weight);
  if (!has_layers_) await_weights();
}

void DataParallel::await_weights() const {
  for (auto& b : model_.trained()) b->gathering.wait();
}

int64_t DataParallel::parameter_count(Count which) const {
  return std::accumulate(model_.declared.begin(), model_.declared.end(), int64_t{0},
                         [&](int64_t n, auto* p) {
                           return which == Count::trained && p->frozen ? n : n + p->full.numel();
                         });
}

std::shared_ptr<void> DataParallel::gather_all() const {
  if (model_.options.zero == Zero::parameters) return gathered_.hold_all();
  await_weights();
  return nullptr;
}

}  // namespace triax::parallel
