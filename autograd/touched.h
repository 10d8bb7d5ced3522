#pragma once
#include "core/tensor.h"

namespace triax::autograd {

/// While one lives, the leaves that ops use without recording are noted in order of first use:
/// the order in which their hooks will fire must be the same on every rank, so never an address's.
class Touched {
 public:
  Touched();
  ~Touched();
  Touched(const Touched&) = delete;
  Touched& operator=(const Touched&) = delete;
  const Tensors& leaves() const { return leaves_; }

 private:
  friend void note_touched(const Tensors& used);
  Tensors leaves_;
  Touched* outer_;
};

void note_touched(const Tensors& used);

/// Does recompute() run its function a second time, in backward, on this thread?
bool recomputing();

}  // namespace triax::autograd
