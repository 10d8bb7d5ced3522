#pragma once
#include <string>
#include <utility>

#include "core/check.h"
#include "nn/layer.h"

namespace triax::nn {

/// A model as an ordered list of named layers: what a pipeline places on stages, ZeRO-3 gathers,
/// parity compares and the planner measures.
///
///   struct Mlp : nn::Sequence {
///     Mlp() { add<Hidden>("up", 32, 64), add<Hidden>("down", 64, 10), add<Loss>("loss"); }
///   };
///
/// A layer's call operator has one of the forms (x, batch), (batch), (x). The first layer's x is
/// the batch's input. The last layer returns the sum of the loss over all targets that count, one
/// element, or, of a batch without target, the prediction.
class Sequence : public Module {
 public:
  /// They refer to this model.
  const Layers& layers() const { return layers_; }
  /// All layers in order, for a model that this rank holds whole.
  Tensor operator()(const Batch& batch) const {
    Tensor x;
    for (auto& layer : layers_) x = layer.run(x, batch);
    return x;
  }

 protected:
  /// A child that is a layer. A member function `selective(x, batch)`, if it has one, is what
  /// selective recomputation runs in place of its call operator; a static member `independent` is
  /// Layer::independent.
  template <class L, class... Args> L& add(std::string name, Args&&... args) {
    L& layer = child<L>(name, std::forward<Args>(args)...);
    add(std::move(name), {&layer}, [&layer](const Tensor& x, const Batch& batch) {
      return call(layer, x.defined() ? x : batch.input, batch);
    });
    if constexpr (requires(const Tensor& x, const Batch& b) { layer.selective(x, b); })
      layers_.back().selective = [&layer](const Tensor& x, const Batch& batch) {
        return layer.selective(x, batch);
      };
    if constexpr (requires { L::independent; }) layers_.back().independent = L::independent;
    layers_.back().reads_batch = layers_.size() == 1 || !of_input_alone<L>;
    return layer;
  }
  /// A layer over children that exist: tied tables, functions without parameters.
  Layer& add(std::string name, std::vector<Module*> uses, Layer::Run run) {
    check_name(name);
    for (auto& layer : layers_)
      check_input(layer.name != name, Exit::config,
                  "sequence: layer `{}` is there already; expected another name", name);
    layers_.push_back({std::move(name), std::move(uses), std::move(run)});
    return layers_.back();
  }

 private:
  template <class L>
  static constexpr bool of_input_alone = !requires(L & l, const Tensor& x, const Batch& b) {
    l(x, b);
  }
  &&!requires(L & l, const Batch& b) { l(b); };
  template <class L> static Tensor call(L& layer, const Tensor& x, const Batch& batch) {
    if constexpr (requires { layer(x, batch); }) return layer(x, batch);
    else if constexpr (requires { layer(batch); }) return layer(batch);
    else return layer(x);
  }
  Layers layers_;
};

}  // namespace triax::nn
