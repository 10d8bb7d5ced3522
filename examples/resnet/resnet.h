#pragma once
#include "triax/nn/batch_norm.h"
#include "triax/nn/conv.h"
#include "triax/nn/sequence.h"
#include "triax/parallel/tensor/embedding.h"

namespace triax::resnet {

struct ResNetConfig {
  int64_t classes = 10;
  int64_t width = 64;       ///< channels of the first of four stages; each has twice the last's
  int64_t blocks = 2;       ///< blocks in each stage; 2: ResNet-18
  int64_t bn_samples = 64;  ///< samples that share the statistics of a batch norm
};

/// A convolution and the batch norm behind it. Tensor-parallel ranks hold all of it.
class ConvNorm : public nn::Module {
 public:
  ConvNorm(int64_t in, int64_t out, int64_t samples, const nn::Conv2dOptions& o)
      : conv_(child<nn::Conv2d>("conv", in, out, o)),
        norm_(child<nn::BatchNorm>("norm", out, samples, nn::BatchNormOptions{.shard = o.shard})) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return norm_(conv_(x), batch);
  }

 private:
  nn::Conv2d& conv_;
  nn::BatchNorm& norm_;
};

/// The first layer, for images of 32 x 32 pixels: a 3 x 3 convolution without pooling (He et al.,
/// "Deep residual learning", 2016, section 4.2).
class Stem : public nn::Module {
 public:
  Stem(const ResNetConfig& c, const parallel::TensorParallel& tp)
      : conv_(child<ConvNorm>("conv", 3, c.width, c.bn_samples,
                              nn::Conv2dOptions{.shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const { return relu(conv_(x, batch)); }

 private:
  ConvNorm& conv_;
};

/// Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes
/// (He et al. 2016, figure 2 and option B).
class Block : public nn::Module {
 public:
  struct Size {
    int64_t in, out, stride;
  };
  Block(const Size& s, const ResNetConfig& c, const parallel::TensorParallel& tp)
      : first_(child<ConvNorm>("first", s.in, s.out, c.bn_samples,
                               nn::Conv2dOptions{.stride = s.stride, .shard = tp.whole()})),
        second_(child<ConvNorm>("second", s.out, s.out, c.bn_samples,
                                nn::Conv2dOptions{.shard = tp.whole()})),
        shortcut_(
            s.in == s.out && s.stride == 1
                ? nullptr
                : &child<ConvNorm>(
                      "shortcut", s.in, s.out, c.bn_samples,
                      nn::Conv2dOptions{
                          .kernel = 1, .stride = s.stride, .padding = 0, .shard = tp.whole()})) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    Tensor y = second_(relu(first_(x, batch)), batch);
    return relu(y + (shortcut_ ? (*shortcut_)(x, batch) : x));
  }

 private:
  ConvNorm &first_, &second_;
  ConvNorm* shortcut_;
};

/// The mean over each image, then a classifier.
struct Head : parallel::ClassHead {
  using ClassHead::ClassHead;
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    return ClassHead::operator()(mean(x, {1, 2}), batch);
  }
};

/// Residual network for small images [n, 32, 32, 3], channels last.
struct ResNet : nn::Sequence {
  ResNet(const ResNetConfig& c, const parallel::TensorParallel& tp) {
    add<Stem>("stem", c, tp);
    int64_t in = c.width;
    for (int64_t stage = 0; stage < 4; ++stage)
      for (int64_t b = 0; b < c.blocks; ++b) {
        int64_t out = c.width << stage, stride = stage > 0 && b == 0 ? 2 : 1;
        add<Block>(fmt::format("block{}", stage * c.blocks + b), Block::Size{in, out, stride}, c,
                   tp);
        in = out;
      }
    add<Head>("head", c.classes, in, tp,
              parallel::VocabularyOptions{.std = 1 / std::sqrt(double(in))});
  }
};

}  // namespace triax::resnet
