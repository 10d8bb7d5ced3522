#pragma once
#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>
#include <vector>

#include "triax/autograd/record.h"
#include "triax/nn/layer.h"

namespace triax::test {

/// A layer that sleeps where others compute, so that what overlaps can be told by the clock,
/// however busy the cores are. It passes its input on; the first of a model makes one.
struct SlowLayer : nn::Module {
  struct Times {
    double forward = 0, input = 0, weight = 0;  ///< seconds; the last two: of the gradients
  };
  SlowLayer(Times t, int64_t elements)
      : times(t), weight(parameter({.name = "weight", .full = {elements}})) {}

  Tensor operator()(const Tensor& x) {
    work(times.forward);
    bool first = !x.defined();
    return record(
        "slow", first ? zeros({1}, f32, cpu) : x.detach(), first ? Tensors{} : Tensors{x},
        [=, this](const Tensor& dy, autograd::Into&) {
          work(times.input);
          return first ? Tensors{} : Tensors{dy};
        },
        {weight},
        [this](const Tensor&, autograd::Into&) {
          work(times.weight);
          return Tensors{full(weight.full, 1, f32, cpu)};
        });
  }
  nn::Layer layer() {
    return {"slow", {this}, [this](const Tensor& x, const nn::Batch&) { return (*this)(x); }};
  }

  Times times;
  nn::Parameter& weight;
  double worked = 0;  ///< seconds

 private:
  void work(double seconds) {
    auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    worked += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

/// Some of them in a row.
struct SlowModel : nn::Module {
  SlowModel(int layers, SlowLayer::Times times, int64_t elements)
      : SlowModel(std::vector(size_t(layers), times), elements) {}
  /// A layer for each of `times`.
  SlowModel(const std::vector<SlowLayer::Times>& times, int64_t elements) {
    for (auto& t : times)
      all.push_back(&child<SlowLayer>("layer" + std::to_string(all.size()), t, elements));
  }
  Tensor operator()() const {
    Tensor x;
    for (auto* layer : all) x = (*layer)(x);
    return x;
  }
  nn::Layers layers() const {
    nn::Layers list;
    for (auto* layer : all) list.push_back(layer->layer());
    return list;
  }
  double worked() const {
    double seconds = 0;
    for (auto* layer : all) seconds += layer->worked;
    return seconds;
  }
  std::vector<SlowLayer*> all;
};

/// Seconds that `work` takes.
inline double seconds(const std::function<void()>& work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The least that `measure` returns, of up to eight times, until it is at most `enough`: a busy
/// machine makes things slower, never faster.
inline double least(double enough, const std::function<double()>& measure) {
  double best = measure();
  for (int i = 0; i < 7 && best > enough; ++i) best = std::min(best, measure());
  return best;
}

}  // namespace triax::test
