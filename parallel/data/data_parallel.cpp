#include "parallel/data/data_parallel.h"

#include <algorithm>

#include "core/check.h"

namespace triax::parallel {

DataParallel::DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options)
    : dp_(dp), options_(options) {
  check_input(options.zero != Zero::parameters, Exit::config,
              "data parallel: ZeRO-3 gathers layer by layer; expected a model given as layers");
  groups_.all = &dp;
  std::vector<nn::Layers> whole;
  build(model, whole);
}

DataParallel::DataParallel(nn::Module& model, std::vector<nn::Layers>& chunks, Mesh& mesh,
                           const DataParallelOptions& options)
    : dp_(mesh.dp()), groups_{&mesh.tp(), nullptr, &mesh.world()}, options_(options) {
  if (options.ties == DataParallelOptions::Ties::both_ends) groups_.ends = &mesh.ends();
  build(model, chunks);
  check_held_once(mesh.pp());
}

DataParallel::~DataParallel() = default;

void DataParallel::build(nn::Module& model, std::vector<nn::Layers>& chunks) {
  check_input(options_.zero >= Zero::off && options_.zero <= Zero::parameters, Exit::config,
              "data parallel: ZeRO stage {}; expected 0, 1, 2 or 3", int(options_.zero));
  DType sent = options_.reduce_dtype;
  check_input(sent == f32 || (sent == bf16 && !options_.bitwise), Exit::config,
              "data parallel: gradients sent in {}{}; expected f32 or bf16, and f32 with bitwise",
              name(sent), options_.bitwise ? " with bitwise" : "");
  if (options_.bitwise) fixed_ = std::make_unique<FixedGradients>(options_.samples, dp_.size());
  declared_ = model.parameters();
  model.bind(options_.seed);
  if (options_.tune) options_.tune(model);
  if (!groups_.tp) check_same_model();  // that of a mesh, the trainer compares
  auto frozen = [](auto* p) { return p->frozen; };
  bool trains = options_.purpose == nn::Purpose::training && !declared_.empty();
  check_input(!trains || !std::ranges::all_of(declared_, frozen), Exit::config,
              "data parallel: all {} parameters are frozen, by the model or by "
              "--groups; expected one to train",
              declared_.size());
  bool layered = options_.zero == Zero::parameters;
  auto groups = group(model, chunks, layered ? Grouping::by_layer : Grouping::by_chunk);
  auto layouts = lay_out(groups, options_.buckets, options_.zero == Zero::off ? 1 : dp_.size());
  trained_ = size_t(std::ranges::count_if(layouts, [](auto& l) { return !l.frozen(); }));
  place(layouts, chunks);
  for (auto& l : layouts) add_bucket(l);
  if (layered)
    for (auto& chunk : chunks) surround(chunk);
}

/// Filled bucket by bucket, so that ZeRO-3 never holds the whole model.
void DataParallel::add_bucket(const BucketLayout& layout) {
  auto b = std::make_unique<Bucket>(layout);
  bool cut = cuts(layout.frozen());
  bool trains = options_.purpose == nn::Purpose::training && !layout.frozen();
  int64_t slice = cut ? layout.length / dp_.size() : layout.length;
  b->my_first = cut ? dp_.rank() * slice : 0;
  {
    memory::Scope scope(memory::parameters);
    // Weights that move between ranks lie where the transport needs no copies.
    b->weight = cut ? dp_.empty({layout.length}, options_.dtype)
                    : empty({layout.length}, options_.dtype, dp_.device());
    fill_(b->weight, 0);
    if (options_.purpose == nn::Purpose::training)
      for (auto& [p, begin, length, first] : layout.pieces)
        p->fill(b->weight.narrow(0, begin, length).view(p->local()));
    b->my_weight = b->weight.narrow(0, b->my_first, slice);
    if (options_.zero == Zero::parameters) {
      Tensor values = b->my_weight;
      b->my_weight = slice_of(*b, options_.dtype, layout.record);
      write_weight(*b, values);
      b->weight.storage()->release();
    }
  }
  if (trains) {
    memory::Scope scope(memory::gradients);
    b->grad = dp_.empty({layout.length}, sums());
    if (releases_gradients()) {
      b->grad.storage()->release();
      b->my_sums = slice_of(*b, sums(), layout.record + 1);
    } else {
      fill_(b->grad, 0);  // the padding stays zero for good
      b->my_sums = b->grad.narrow(0, b->my_first, slice);
    }
    b->my_grad = options_.bitwise ? rounded_slice(*b) : b->my_sums;
  }
  for (size_t i = 0; i < layout.pieces.size(); ++i) hook(*b, i);
  cut_slots(*b);
  buckets_.push_back(std::move(b));
}

/// Value and gradient of a parameter become views of its bucket.
void DataParallel::hook(Bucket& b, size_t piece) {
  auto& [p, begin, length, first] = b.layout.pieces[piece];
  p->value = b.weight.narrow(0, begin, length).view(p->local());
  if (options_.purpose == nn::Purpose::inference || p->frozen) return;
  require_grad(p->value);
  set_grad_view(p->value, b.grad.narrow(0, begin, length).view(p->local()),
                fixed_ ? fixed_->of(*p, groups_.tp) : autograd::FixedSums());
  on_grad(p->value, [this, bucket = &b, piece] {
    check(due_ > 0 && bucket->fired[piece] < bucket->due,
          "data parallel: backward pass {} of {}; expected {}, as begin() was told",
          bucket->fired[piece] + 1, bucket->layout.pieces[piece].parameter->name, bucket->due);
    bucket->fire(piece);
    if (watch_ == Watch::on && !seen_) look_at(*bucket, piece);
    if (!releases_gradients()) launch_full();
    else if (bucket->complete > bucket->reductions) reduce(*bucket);
    poll();  // sums under way advance only when this rank looks after them
  });
}

void DataParallel::begin(int64_t micros, Watch watch, double scale) {
  check(micros >= 1, "data parallel: begin with {} micro-batches; expected at least 1", micros);
  if (fixed_) fixed_->begin(micros, scale);
  due_ = micros;
  launched_ = 0;
  watch_ = watch;
  seen_.reset();
  for (auto& b : trained()) {
    b->begin(micros * b->layout.passes);
    for (auto& piece : b->layout.pieces) set_fresh(piece.parameter->value);
  }
}

/// Buckets go in one fixed order, so that every rank's collectives match, whatever order their
/// parameters happen to complete in.
void DataParallel::launch_full() {
  while (launched_ < trained_ && buckets_[launched_]->complete >= buckets_[launched_]->due)
    reduce(*buckets_[launched_++]);
}

void DataParallel::reduce(Bucket& b) {
  memory::Scope scope(memory::gradients);
  b.grad.storage()->restore();  // nobody may have written to it
  zero_unwritten(b);
  if (in_flight_) settle(*in_flight_);
  ++b.reductions;
  if (narrows()) {
    b.sending = dp_.empty(b.grad.shape(), options_.reduce_dtype);
    copy_(b.sending, b.grad);
  } else {
    b.sending = b.grad;
  }
  if (releases_gradients()) {
    // The bytes move to the transfer; the next micro-batch finds an empty bucket.
    auto bytes = b.grad.storage()->take();
    if (!narrows()) b.sending = Tensor(bytes, b.grad.dtype(), b.grad.shape(), b.grad.strides());
    for (auto& piece : b.layout.pieces) set_fresh(piece.parameter->value);
    in_flight_ = &b;
  }
  if (narrows() || b.offloaded()) b.arriving = b.sending.narrow(0, b.my_first, b.my_sums.numel());
  else if (b.reductions > 1) b.arriving = dp_.empty(b.my_sums.shape(), b.my_sums.dtype());
  const Tensor& sum = b.arriving.defined() ? b.arriving : b.my_sums;
  b.reducing =
      options_.zero == Zero::off ? dp_.all_reduce(b.sending) : dp_.reduce_scatter(b.sending, sum);
}

void DataParallel::settle(Bucket& b) {
  b.reducing.wait();
  if (b.arriving.defined()) add_arrived(b);
  b.sending = b.arriving = {};
  if (in_flight_ == &b) in_flight_ = nullptr;
}

/// Parameters that took no part, and (in bytes that are new) the padding.
void DataParallel::zero_unwritten(Bucket& b) {
  int64_t end = 0;
  auto clear = [&](int64_t from, int64_t to) {
    if (from < to) fill_(b.grad.narrow(0, from, to - from), 0);
  };
  for (auto& [p, begin, length, first] : b.layout.pieces) {
    if (releases_gradients()) clear(end, begin);
    end = begin + length;
    if (is_fresh(p->value)) clear(begin, end);
  }
  if (releases_gradients()) clear(end, b.layout.length);
}

void DataParallel::finish() {
  check_passes();
  for (auto& b : trained())
    while (b->reductions < (releases_gradients() ? b->due : 1)) reduce(*b);
  for (auto& b : trained()) settle(*b);
  due_ = 0;
  launched_ = trained_;
  for (auto& b : buckets_)
    if (options_.zero == Zero::parameters) {  // gathered ahead, not used
      check(b->users == 0,
            "data parallel: weights of {} are still in use at the end of a step; expected every "
            "layer's output to depend on its input, and no handle of gather_all()",
            b->layout.pieces[0].parameter->name);
      b->gathering.wait();
      b->weight.storage()->release();
    }
  sum_partial();
  for (auto& b : trained())
    if (groups_.ends && b->layout.pieces[0].parameter->tied) {
      auto held = b->my_sums.storage()->hold(Access::write);
      Tensor grad = b->my_sums.to(dp_.device());
      groups_.ends->all_reduce(grad).wait();
      if (!grad.is(b->my_sums)) copy_(b->my_sums, grad);
    }
  if (options_.bitwise)
    for (auto& b : trained()) round_sums(*b);
}

/// Parameters that saw only this rank's rows (sequence parallel) or features.
void DataParallel::sum_partial() {
  if (!groups_.tp || groups_.tp->size() == 1) return;
  Tensors parts;
  int64_t total = 0;
  for (auto& b : trained())
    for (auto& piece : b->layout.pieces) {
      Range r = b->mine(piece);
      if (!piece.parameter->shard.partial || r.begin == r.end) continue;
      parts.push_back(b->my_sums.narrow(0, r.begin, r.end - r.begin));
      total += r.end - r.begin;
    }
  auto partial = [](auto* p) { return p->shard.partial && !p->frozen; };
  if (!looked_at_parts_ && std::ranges::any_of(declared_, partial)) look_at_parts();
  if (parts.empty()) return;
  Tensor flat = groups_.tp->empty({total}, parts[0].dtype());
  auto each = [&](auto f) {
    int64_t at = 0;
    for (auto& part : parts) {
      auto held = part.storage()->hold(Access::write);
      f(part, flat.narrow(0, at, part.numel()));
      at += part.numel();
    }
  };
  each([](const Tensor& part, const Tensor& in_flat) { copy_(in_flat, part); });
  groups_.tp->all_reduce(flat).wait();
  each([](const Tensor& part, const Tensor& in_flat) { copy_(part, in_flat); });
}

void DataParallel::publish() {
  if (options_.zero != Zero::optimizer && options_.zero != Zero::gradients) return;
  std::vector<Work> gathers;
  for (auto& b : trained()) gathers.push_back(dp_.all_gather(b->my_weight, b->weight));
  for (auto& g : gathers) g.wait();
}

}  // namespace triax::parallel
