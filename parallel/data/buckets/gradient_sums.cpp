#include "triax/parallel/data/buckets/gradient_sums.h"

#include "triax/core/check.h"

namespace triax::parallel {

ReductionRule reduction_rule(Zero stage) {
  check_input(stage >= Zero::off && stage <= Zero::parameters, Exit::config,
              "data parallel: ZeRO stage {}; expected 0, 1, 2 or 3", int(stage));
  static constexpr ReductionRule rules[] = {
      {.scatters = false, .each_pass = false},  // off
      {.scatters = true, .each_pass = false},   // optimizer
      {.scatters = true, .each_pass = true},    // gradients
      {.scatters = true, .each_pass = true},    // parameters
  };
  return rules[size_t(stage)];
}

GradientSums::GradientSums(const HeldModel& m, const SliceStore& slices)
    : m_(m), slices_(slices), rule_(reduction_rule(m.options.zero)) {
  if (m.options.bitwise)
    exact_ = std::make_unique<ExactGradients>(m.options.samples, m.dp.size(), m.options.row_parts);
}

void GradientSums::make(Bucket& b) const {
  memory::Scope scope(memory::gradients);
  b.grad = m_.dp.empty({b.layout.length}, m_.sum_dtype());
  if (rule_.each_pass) {
    b.grad.storage()->release();
    b.my_sums = slices_.make(b, m_.sum_dtype(), b.layout.record + 1);
  } else {
    fill_(b.grad, 0);  // the padding stays zero for good
    b.my_sums = b.grad.narrow(0, b.my_first, b.my_weight.numel());
  }
  b.my_grad = m_.options.bitwise ? slices_.make_rounded(b) : b.my_sums;
}

void GradientSums::hook(Bucket& b, size_t piece,
                        std::function<void(const Bucket&, size_t piece)> seen) {
  auto& [p, begin, length, first] = b.layout.pieces[piece];
  p->value = b.weight.narrow(0, begin, length).view(p->local());
  if (m_.options.purpose == nn::Purpose::inference || p->frozen) return;
  require_grad(p->value);
  Tensor view = b.grad.narrow(0, begin, length).view(p->local());
  b.views[piece] =
      exact_ ? exact_->collector(*p, view, m_.tp) : std::make_shared<autograd::GradientView>(view);
  collect_in(p->value, b.views[piece]);
  on_grad(p->value, [this, bucket = &b, piece, seen = std::move(seen)] {
    check(due_ > 0 && bucket->fired[piece] < bucket->due,
          "data parallel: backward pass {} of {}; expected {}, as begin() was told",
          bucket->fired[piece] + 1, bucket->layout.pieces[piece].parameter->name, bucket->due);
    bucket->fire(piece);
    seen(*bucket, piece);
    if (!rule_.each_pass) launch_in_order();
    else if (bucket->complete > bucket->reductions) reduce(*bucket);
    poll();  // sums under way advance only when this rank looks after them
  });
}

void GradientSums::begin(int64_t micros, double scale) {
  check(micros >= 1, "data parallel: begin with {} micro-batches; expected at least 1", micros);
  if (exact_) exact_->begin(micros, scale);
  due_ = micros;
  launched_ = 0;
  for (auto& b : m_.trained()) {
    b->begin(micros * b->layout.passes);
    for (auto& view : b->views) view->set_fresh();
  }
}

/// Starts full buckets in one fixed order, so that every rank's collectives match, whatever order
/// their parameters complete in.
void GradientSums::launch_in_order() {
  while (launched_ < m_.trained_buckets &&
         m_.buckets[launched_]->complete >= m_.buckets[launched_]->due)
    reduce(*m_.buckets[launched_++]);
}

void GradientSums::reduce(Bucket& b) {
  memory::Scope scope(memory::gradients);
  b.grad.storage()->restore();  // nobody may have written to it
  zero_unwritten(b);
  if (in_flight_) settle(*in_flight_);
  ++b.reductions;
  if (narrows(b)) {
    b.sending = m_.dp.empty(b.grad.shape(), m_.options.reduce_dtype);
    copy_(b.sending, b.grad);
  } else {
    b.sending = b.grad;
  }
  if (rule_.each_pass) {
    // The bytes move to the transfer; the next micro-batch finds an empty bucket.
    auto bytes = b.grad.storage()->take();
    if (!narrows(b)) b.sending = Tensor(bytes, b.grad.dtype(), b.grad.shape(), b.grad.strides());
    for (auto& view : b.views) view->set_fresh();
    in_flight_ = &b;
  }
  if (narrows(b) || b.offloaded()) b.arriving = b.sending.narrow(0, b.my_first, b.my_sums.numel());
  else if (b.reductions > 1) b.arriving = m_.dp.empty(b.my_sums.shape(), b.my_sums.dtype());
  const Tensor& sum = b.arriving.defined() ? b.arriving : b.my_sums;
  b.reducing =
      rule_.scatters ? b.over->reduce_scatter(b.sending, sum) : b.over->all_reduce(b.sending);
}

void GradientSums::settle(Bucket& b) {
  b.reducing.wait();
  if (b.arriving.defined()) slices_.add_arrived(b);
  b.sending = b.arriving = {};
  if (in_flight_ == &b) in_flight_ = nullptr;
}

/// Zeroes gradients of unused parameters and (in bytes that are new) the padding.
void GradientSums::zero_unwritten(Bucket& b) {
  int64_t end = 0;
  auto clear = [&](int64_t from, int64_t to) {
    if (from < to) fill_(b.grad.narrow(0, from, to - from), 0);
  };
  for (size_t i = 0; i < b.views.size(); ++i) {
    auto& piece = b.layout.pieces[i];
    if (rule_.each_pass) clear(end, piece.begin);
    end = piece.begin + piece.length;
    if (b.views[i]->fresh()) clear(piece.begin, end);
  }
  if (rule_.each_pass) clear(end, b.layout.length);
}

/// Checks, with ZeRO-2 and 3, that each pass completed all buckets: a rank whose pass leaves one
/// out would add up another bucket than the others do.
void GradientSums::check_passes() const {
  check(due_ > 0, "data parallel: finish without begin");
  for (auto& b : m_.trained())
    for (size_t i = 0; i < b->fired.size(); ++i) {
      const std::string& name = b->layout.pieces[i].parameter->name;
      check_input(!rule_.each_pass || m_.dp.size() == 1 || b->fired[i] == b->due, Exit::config,
                  "train: {} of the {} backward passes of this rank reach {}; expected all with "
                  "ZeRO stage {}{}",
                  b->fired[i], b->due, name, int(m_.options.zero), if_modules_are_left_out);
    }
  if (exact_) exact_->check_uses(due_);
}

void GradientSums::finish() {
  check_passes();
  for (auto& b : m_.trained())
    while (b->reductions < (rule_.each_pass ? b->due : 1)) reduce(*b);
  for (auto& b : m_.trained()) settle(*b);
  due_ = 0;
  launched_ = m_.trained_buckets;
}

}  // namespace triax::parallel
