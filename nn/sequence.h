#pragma once
#include <concepts>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>

#include "triax/core/check.h"
#include "triax/nn/layer.h"

namespace triax::nn {

/// A layer takes (x, batch), (x) or (batch), the first of these that fits, and returns a tensor.
template <class F, class... X>
concept Takes = std::is_invocable_r_v<Tensor, F&, const X&...>;
template <class F>
concept LayerCall = Takes<F, Tensor, Batch> || Takes<F, Tensor> || Takes<F, Batch>;

/// A model as an ordered list of named layers: what a pipeline places on stages, ZeRO-3 gathers,
/// parity compares and the planner measures.
///
///   struct Mlp : nn::Sequence {
///     Mlp() { add<Hidden>("up", 32, 64), add<Hidden>("down", 64, 10), add<Loss>("loss"); }
///   };
///
/// The first layer's x is the batch's input. The last layer returns the sum of the loss over all
/// targets that count, one element, or, of a batch without target, the prediction.
class Sequence : public Module {
 public:
  /// Returns the layers, which refer to this model.
  const Layers& layers() const { return layers_; }
  /// Runs all layers in order, for a model that this rank holds whole.
  Tensor operator()(const Batch& batch) const {
    Tensor x;
    for (auto& layer : layers_) x = layer.run(x, batch);
    return x;
  }

 protected:
  /// Adds a child that is a layer. Its `selective(x, batch)`, if it has one, becomes
  /// Layer::selective, its static `independent` Layer::independent.
  template <class L, class... Args>
  requires std::derived_from<L, Module> && LayerCall<L> && std::constructible_from<L, Args...> L&
  add(std::string name, Args&&... args) {
    L& layer = child<L>(name, std::forward<Args>(args)...);
    add(std::move(name), {&layer}, std::ref(layer));
    if constexpr (requires(const Tensor& x, const Batch& b) { layer.selective(x, b); })
      layers_.back().selective = [&layer](auto& x, auto& b) { return layer.selective(x, b); };
    if constexpr (requires { L::independent; }) layers_.back().independent = L::independent;
    return layer;
  }
  /// Adds a layer over existing children: tied tables, functions without parameters.
  template <LayerCall F> Layer& add(std::string name, std::vector<Module*> uses, F run) {
    check_name(name);
    for (auto& layer : layers_)
      check_input(layer.name != name, Exit::config,
                  "sequence: layer `{}` is there already; expected another name", name);
    constexpr bool both = Takes<F, Tensor, Batch>, of_x = !both && Takes<F, Tensor>;
    auto call = [run = std::move(run)](const Tensor& x, const Batch& batch) mutable -> Tensor {
      const Tensor& in = x.defined() ? x : batch.input;
      if constexpr (both) return run(in, batch);
      else if constexpr (of_x) return run(in);
      else return run(batch);
    };
    layers_.push_back({std::move(name), std::move(uses), std::move(call)});
    layers_.back().reads_batch = layers_.size() == 1 || !of_x;
    return layers_.back();
  }

 private:
  Layers layers_;
};

}  // namespace triax::nn
