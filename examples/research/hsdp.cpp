// Hybrid sharding: ZeRO shards weights and state within a node, and nodes hold the same slices,
// whose gradients are summed once a step (Zhao et al., "PyTorch FSDP", 2023, section 3.2.2).
//   hsdp parity --mesh 2x1x2 --nodes 2 --zero 3
#include "points.h"

using namespace triax::parallel;

int main(int argc, char** argv) {
  ProgramOptions o = program_of("hsdp", "Tries hybrid sharding.");
  o.train.step.add_axis({.name = "nodes",
                         .help = "nodes that hold the same slices of weights and state",
                         .cuts = Cuts::samples,
                         .zeros = AxisKind::Zeros::replicate});
  return program(argc, argv, o);
}
