#include "parallel/parity/held.h"

namespace triax::parallel {

Tensor on_cpu(const Tensor& x) { return x.detach().contiguous().to(cpu); }

void each_state(const Step& step, const SeePiece& see) {
  auto gathered = step.replica().data().gather_all();
  for (auto* p : step.replica().parameters()) {
    if (!p->value.defined()) continue;
    Tensor slice = p->value.detach();
    if (p->shard.padding > 0) slice = slice.narrow(0, 0, p->slice()[0]);
    see({p->name, "", part_of(*p), on_cpu(slice)});
  }
  for (auto& b : step.replica().buffers().pieces(Holder::any))
    see({b.name, "", b.part, on_cpu(b.value)});
  for (auto& piece : step.pieces(Holder::any)) {
    if (piece.kind.empty()) continue;
    auto held = piece.value.storage()->hold(Access::read);
    see({piece.name, piece.kind, piece.part, on_cpu(piece.value)});
  }
}

void each_gradient(const Step& step, const SeePiece& see) {
  for (auto& piece : gradient_pieces(step.replica().data())) {
    auto held = piece.value.storage()->hold(Access::read);
    see({piece.name, piece.kind, piece.part, on_cpu(piece.value)});
  }
}

}  // namespace triax::parallel
