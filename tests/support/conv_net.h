#pragma once
#include <map>

#include "tests/support/tiny_task.h"
#include "triax/nn/batch_norm.h"
#include "triax/nn/conv.h"

/// @file A small convolutional net with batch norm, and its data.
namespace triax::test {

struct ConvNorm : nn::Module {
  struct Size {
    int64_t in, out, stride, samples;
  };
  ConvNorm(const Size& s, const parallel::TensorParallel& tp)
      : conv(child<nn::Conv2d>("conv", s.in, s.out,
                               nn::Conv2dOptions{.stride = s.stride, .shard = tp.whole()})),
        norm(child<nn::BatchNorm>("norm", s.out, s.samples,
                                  nn::BatchNormOptions{.shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return relu(norm(conv(x), batch));
  }
  nn::Conv2d& conv;
  nn::BatchNorm& norm;
};

struct ConvHead : parallel::ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return ClassHead::operator()(mean(x, {1, 2}), batch);
  }
};

/// Shapes differ at every cut.
struct ConvNet : nn::Sequence {
  ConvNet(int64_t samples, const parallel::TensorParallel& tp) {
    add<ConvNorm>("first", ConvNorm::Size{2, 4, 1, samples}, tp);
    add<ConvNorm>("second", ConvNorm::Size{4, 8, 2, samples}, tp);
    add<ConvNorm>("third", ConvNorm::Size{8, 6, 1, samples}, tp);
    add<ConvHead>("head", 4, 6, tp, parallel::VocabularyOptions{.std = 0.3});
  }
};

/// Random images and classes; batch norm over the statistics of `samples`.
inline parallel::Task conv_task(int64_t samples) {
  auto images = [](int64_t count, uint64_t key) {
    std::vector<float> x(size_t(count * 32));
    std::vector<int32_t> y(static_cast<size_t>(count));
    for (size_t i = 0; i < x.size(); ++i) x[i] = float(random::normal(key, i));
    for (size_t i = 0; i < y.size(); ++i) y[i] = int32_t(i % 4);
    return std::make_shared<nn::TensorSamples>(from_host(x, {count, 4, 4, 2}, cpu),
                                               from_host(y, {count}, cpu));
  };
  return {.build = [samples](auto& tp) { return std::make_unique<ConvNet>(samples, tp); },
          .samples = images(64, 1),
          .held_out = images(10, 2)};
}

inline parallel::TrainOptions conv_options(const parallel::MeshShape& mesh, int64_t micro_batch) {
  auto o = tiny_options(mesh);
  o.step.micro_batch = micro_batch, o.steps = 2;
  return o;
}

/// The running statistics, by name.
inline std::map<std::string, std::vector<float>> statistics(const parallel::Trainer& t) {
  std::map<std::string, std::vector<float>> all;
  for (auto& b : t.update().replica().buffers().pieces(parallel::Holder::any))
    all[b.name] = b.value.to_host<float>();
  return all;
}

}  // namespace triax::test
