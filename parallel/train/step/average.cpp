// Validation with averaged weights.
#include <string_view>

#include "triax/parallel/train/step/step.h"

namespace triax::parallel {

void Step::with_average(const std::function<void()>& f) {
  struct Swapped {
    Tensor weight, trained;
  };
  std::vector<Swapped> swapped;
  replica_.data().await_weights();
  auto slots = replica_.data().slots();
  for (auto& s : optimizer_->state()) {
    if (s.kind != std::string_view("average")) continue;
    memory::Scope scope(memory::buffers);
    Tensor weight = slots[s.slot].weight.narrow(0, s.begin, s.value.numel());
    swapped.push_back({weight, clone(weight)});
    copy_(weight, s.value);
  }
  if (swapped.empty()) return f();
  auto put_back = [&] {
    for (auto& s : swapped) copy_(s.weight, s.trained);
  };
  replica_.data().publish();
  replica_.data().await_weights();
  try {
    f();
  } catch (...) {  // other ranks may be anywhere: nothing collective
    put_back();
    throw;
  }
  put_back();
  replica_.data().publish();
}

}  // namespace triax::parallel
