#pragma once
#include "triax/autograd/backward.h"

namespace triax {

/// Says what a layer saves for backward: all, or nothing that is cheap to make again
/// (nn::Layer::selective).
enum class Saves { all, less };

/// Returns y; with Saves::less that of remake().
inline Tensor remade(Saves saves, const Tensor& y, const Tensor& made, std::function<Tensor()> f) {
  return saves == Saves::less ? remake(y, made, std::move(f)) : y;
}

}  // namespace triax
