#include "triax/core/check.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {

/// Returns the facts of a batch, kept for the next: decoding asks for one shape again and again.
const Facts& Replica::facts_of(const nn::Batch& batch) {
  auto shapes = nn::input_shapes(batch);
  bool decoded = batch.cache != nullptr;
  ProbeOptions whole = probe_options(options_);
  whole.cp = whole.row_parts = 1;  // each rank of cp has all rows of it
  if (!predicted_ || predicted_->decoded != decoded || predicted_->inputs != shapes)
    predicted_ = Predicted{shapes, decoded, probe(build_, batch, whole)};
  return predicted_->facts;
}

Tensor Replica::predict(const nn::Batch& batch) {
  check(!batch.cache || batch.input.size(0) == 1,
        "predict: a key-value cache and input {}; expected one sequence", batch.input);
  Tensor y;
  PipelineRun run{
      .batch = [&](int) { return nn::to(batch, mesh_.world().device(), options_.dtype); },
      .output = [&](int, const Tensor& last) { y = last.detach(); }};
  bool alone = mesh_.pp().size() == 1;
  if (!alone) run.boundaries = facts_of(batch).boundaries(counts_);
  pipeline_.infer(run);
  if (batch.cache) batch.cache->advance(batch.input.size(1));
  if (alone) return y;
  Boundary last = predicted_->facts.layers().back().out;
  Tensor all = empty(last.shape, last.dtype, mesh_.world().device());
  if (y.defined()) copy_(all, y);
  mesh_.pp().broadcast(all, options_.pipeline().last_stage()).wait();
  return all;
}

}  // namespace triax::parallel
