#pragma once
#include "triax/core/tensor.h"

namespace triax::autograd {

/// While it lives, it notes the leaves that ops use without recording, in order of first use: their
/// hooks must fire in the same order on every rank, so the order cannot be that of addresses.
class Touched : Immovable {
 public:
  Touched();
  ~Touched();
  const Tensors& leaves() const { return leaves_; }

 private:
  friend void note_touched(const Tensors& used);
  Tensors leaves_;
  Touched* outer_;
};

void note_touched(const Tensors& used);

/// True while recompute() runs its function a second time, in backward, on this thread.
bool recomputing();

}  // namespace triax::autograd
