// Every rank brings a tensor, all get the sum: `mpirun -np 4 all_reduce`.
#include <fmt/core.h>

#include "triax/parallel/comm/launch/world.h"

using namespace triax;

int main(int argc, char** argv) {
  return parallel::run_main(argc, argv, [](int c, char** v) {
    parallel::World world(c, v);
    Tensor x = full({4}, world.rank() + 1, f32, cpu);  // rank 0 brings ones, rank 1 twos, ...
    parallel::Work sum = world.comm().all_reduce(x);   // starts; the rank may compute meanwhile
    sum.wait();
    fmt::print("rank {} of {}: the sum is {}\n", world.rank(), world.size(),
               x.narrow(0, 0, 1).item());
    return 0;
  });
}
