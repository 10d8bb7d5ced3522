#include "triax/parallel/train/model/by_sample.h"

#include "triax/autograd/ops.h"
#include "triax/autograd/scopes.h"
#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// Returns rows [begin, begin + count) of x. All users of x take rows of their own: their gradients
/// are laid side by side, and nothing is added.
Tensor own_rows(const Tensor& x, int64_t begin, int64_t count) {
  Tensor y = x.detach().narrow(0, begin, count);
  return record("sample", y, {x},
                [=, s = x.shape(), dtype = x.dtype()](const Tensor& dy, autograd::Into& into) {
                  auto [dx, write] = into.at(0, s, dtype, dy.device());
                  if (write == Write::set) fill_(dx, 0);
                  copy_(dx.narrow(0, begin, count), dy);
                  return Tensors{dx};
                });
}

/// Returns sample `i` of a micro-batch, as a micro-batch of its own.
nn::Batch sample_of(const nn::Batch& batch, int64_t i) {
  nn::Batch one = nn::mapped(batch, [&](const Tensor& x) { return x.narrow(0, i, 1); });
  if (batch.first != nn::evaluation) one.first += i;
  return one;
}

Tensor all_at_once(const nn::Layer::Run& plain, const Tensor& x, const nn::Batch& batch) {
  int64_t samples = batch.input.size(0);
  autograd::SamplesAtOnce scope(samples);
  Tensor y = plain(x, batch);
  check_input(y.rank() > 0 && y.size(0) % samples == 0, Exit::config,
              "bitwise: {} of {} samples; expected rows of each from a layer that is "
              "`independent`\n  Take --micro-batch 1.",
              y, samples);
  return y;
}

}  // namespace

LayerObserver each_sample(LayerObserver observer) {
  return [observer = std::move(observer)](const std::string& layer, const Tensor& y,
                                          const nn::Batch& batch) {
    int64_t samples = batch.input.size(0);
    if (samples == 1) return observer(layer, y, batch);
    int64_t rows = y.size(0) / samples;
    for (int64_t i = 0; i < samples; ++i)
      observer(layer, y.detach().narrow(0, i * rows, rows), sample_of(batch, i));
  };
}

nn::Layer::Run apart(nn::Layer::Run plain) {
  return [plain = std::move(plain)](const Tensor& x, const nn::Batch& batch) {
    if (!x.defined() || !requires_grad(x)) return plain(x, batch);
    auto pass = [](const Tensor& dy) { return Tensors{dy}; };
    return plain(record("layer", x.detach(), {x}, pass), batch);
  };
}

nn::Layer::Run rows_alike(nn::Layer::Run run) {
  return [run = std::move(run)](const Tensor& x, const nn::Batch& batch) {
    autograd::RowsAlike scope(true);
    return run(x, batch);
  };
}

nn::Layer by_sample(nn::Layer layer, const std::vector<Shape>& inputs) {
  layer.reads_batch = true;
  layer.run = [at_once = layer.independent, plain = std::move(layer.run), inputs](
                  const Tensor& x, const nn::Batch& batch) {
    int64_t samples = batch.input.size(0);
    if (samples == 1) return plain(x, batch);
    // Padded to the longest of another micro-batch, a sample would get other bits.
    auto shapes = nn::input_shapes(batch);
    check_input(batch.first == nn::evaluation || shapes == inputs, Exit::data,
                "bitwise: a batch has input {}, the first samples have {}; expected one shape\n"
                "  Pad all samples to one shape, or take --micro-batch 1.",
                join(shapes, ", "), join(inputs, ", "));
    check_input(!x.defined() || (x.rank() > 0 && x.size(0) % samples == 0), Exit::config,
                "bitwise: {} of {} samples; expected dim 0 to hold equally many rows of each, one "
                "sample behind the other\n  Take --micro-batch 1.",
                x, samples);
    int64_t rows = x.defined() ? x.size(0) / samples : 0;
    if (at_once && rows > 0 && rows % Matmul::block == 0) return all_at_once(plain, x, batch);
    Tensors parts;
    for (int64_t i = 0; i < samples; ++i) {
      Tensor y = plain(x.defined() ? own_rows(x, i * rows, rows) : x, sample_of(batch, i));
      parts.push_back(y.rank() == 0 ? view(y, {1}) : y);
    }
    return concat(parts, 0);
  };
  return layer;
}

}  // namespace triax::parallel
