#include "triax/parallel/parity/held.h"

namespace triax::parallel {
namespace {

void see_each(const std::vector<Piece>& pieces, const SeePiece& see) {
  for (auto& piece : pieces) {
    auto held = piece.value.storage()->hold(Access::read);
    see({piece.name, piece.kind, piece.part, on_cpu(piece.value)});
  }
}

}  // namespace

void on_threads(const TrainOptions& o, const std::function<void(World&)>& rank) {
  run_worlds(o.step.mesh.size(), rank,
             {.device = device_named(o.launch.device),
              .gpu_transport = GpuTransport::available,
              .wrap = o.launch.wrap});
}

Tensor on_cpu(const Tensor& x) { return x.detach().contiguous().to(cpu); }

void each_state(const Step& step, const SeePiece& see) {
  auto gathered = step.replica().data().gather_all();
  see_each(read_pieces(step.replica()), see);
  see_each(step.replica().buffers().pieces(Holder::any), see);
  auto state = step.pieces(Holder::any);
  std::erase_if(state, [](auto& piece) { return piece.kind.empty(); });
  see_each(state, see);
}

void each_gradient(const Step& step, const SeePiece& see) {
  see_each(gradient_pieces(step.replica().data()), see);
}

}  // namespace triax::parallel
