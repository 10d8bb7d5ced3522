#include "parallel/data/data_parallel.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"

namespace triax::parallel {

struct DataParallel::Bucket {
  std::vector<BucketPiece> pieces;
  Tensor weight, grad;         // flat
  std::vector<int64_t> fired;  // backward passes completed, per piece
  Work reducing;
};

DataParallel::DataParallel(nn::Module& model, Communicator& dp, const DataParallelOptions& options)
    : dp_(dp), parameters_(model.parameters()), layout_(lay_out(parameters_, options.buckets)) {
  model.bind(options.seed);
  for (auto& bucket : layout_) add_bucket(bucket, options);
}

DataParallel::~DataParallel() = default;

void DataParallel::add_bucket(const BucketLayout& layout, const DataParallelOptions& options) {
  auto b = std::make_unique<Bucket>();
  b->pieces = layout.pieces;
  b->fired.resize(layout.pieces.size());
  {
    memory::Scope scope(memory::parameters);
    b->weight = zeros({layout.length}, options.dtype, cpu);
  }
  {
    memory::Scope scope(memory::gradients);
    b->grad = dp_.empty({layout.length}, accumulator(options.dtype));
    fill_(b->grad, 0);  // the padding stays zero for good
  }
  for (size_t i = 0; i < b->pieces.size(); ++i) {
    auto& [p, begin, length] = b->pieces[i];
    Shape shape = p->local();
    p->value = b->weight.narrow(0, begin, length).view(shape);
    p->fill(p->value);
    require_grad(p->value);
    set_grad_view(p->value, b->grad.narrow(0, begin, length).view(shape));
    on_grad(p->value, [this, bucket = b.get(), i] {
      ++bucket->fired[i];
      launch_full();
      poll();  // sums under way advance only when this rank looks after them
    });
  }
  buckets_.push_back(std::move(b));
}

void DataParallel::begin(int64_t micros) {
  check(micros >= 1, "data parallel: begin with {} micro-batches; expected at least 1", micros);
  due_ = micros;
  launched_ = 0;
  for (auto& b : buckets_) {
    std::fill(b->fired.begin(), b->fired.end(), 0);
    for (auto& piece : b->pieces) set_fresh(piece.parameter->value);
  }
}

/// Buckets go in one fixed order, so that every rank's collectives match, whatever order their
/// parameters happen to complete in.
void DataParallel::launch_full() {
  auto full = [&](const Bucket& b) {
    return std::all_of(b.fired.begin(), b.fired.end(), [&](int64_t n) { return n >= due_; });
  };
  while (launched_ < buckets_.size() && full(*buckets_[launched_])) launch(*buckets_[launched_++]);
}

void DataParallel::launch(Bucket& b) {
  for (auto& [p, begin, length] : b.pieces)
    if (is_fresh(p->value)) fill_(b.grad.narrow(0, begin, length), 0);  // took no part
  b.reducing = dp_.all_reduce(b.grad);
}

void DataParallel::finish() {
  check(due_ > 0, "data parallel: finish without begin");
  while (launched_ < buckets_.size()) launch(*buckets_[launched_++]);
  for (auto& b : buckets_) b->reducing.wait();
  due_ = 0;
}

DataParallel::Norm DataParallel::norm() const {
  if (buckets_.empty()) return {0, 0};
  Tensor out = zeros({2}, f64, buckets_[0]->grad.device());
  for (auto& b : buckets_) backend(out).squares(b->grad, out);
  auto sums = out.to(cpu).to_host<double>();
  bool finite = sums[1] == 0;
  return {finite ? std::sqrt(sums[0]) : std::numeric_limits<double>::infinity(), sums[1]};
}

std::string DataParallel::first_non_finite() const {
  for (auto* p : parameters_) {
    const Tensor& g = grad(p->value);
    Tensor out = zeros({2}, f64, g.device());
    backend(g).squares(g.detach(), out);
    if (out.to(cpu).to_host<double>()[1] > 0) return p->name;
  }
  return {};
}

std::vector<optim::Slot> DataParallel::slots() const {
  std::vector<optim::Slot> slots;
  for (auto& b : buckets_) {
    optim::Slot s{b->weight, b->grad, {}};
    for (auto& [p, begin, length] : b->pieces) {
      if (!p->decay) continue;
      // Neighbours become one range; the padding between them is zero and stays zero.
      if (!s.decayed.empty() && begin - s.decayed.back().end < 16)
        s.decayed.back().end = begin + length;
      else s.decayed.push_back({begin, begin + length});
    }
    slots.push_back(std::move(s));
  }
  return slots;
}

int64_t DataParallel::parameter_count() const {
  int64_t n = 0;
  for (auto* p : parameters_) n += p->local().numel();
  return n;
}

}  // namespace triax::parallel
