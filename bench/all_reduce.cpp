// Our all_reduce against MPI's own, f32, in interleaved pairs: in place in shared memory, and of
// tensors outside it. Run: mpirun -np 2 --bind-to none build/bin/bench_all_reduce
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "parallel/comm/launch/world.h"

namespace {

using namespace triax;
using namespace triax::parallel;
using Times = std::vector<double>;

double quantile(Times t, double q) {
  std::sort(t.begin(), t.end());
  return t[size_t(q * double(t.size() - 1))];
}

/// One call between barriers, in microseconds: the slowest rank's. The calls before it, not timed,
/// have brought the tensors back into the caches that the other ways have used.
double timed(const std::function<void()>& call) {
  for (int i = 0; i < 3; ++i) call();
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  call();
  double took = (MPI_Wtime() - start) * 1e6;
  MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return took;
}

void measure(World& world, int64_t bytes) {
  int64_t n = bytes / 4;
  Communicator& c = world.comm();
  Tensor shared = c.empty({n}, f32), own = zeros({n}, f32, cpu), other = zeros({n}, f32, cpu);
  fill_(shared, 0);
  void *x = own.data(), *y = other.data();
  int count = int(n);
  const std::vector<std::function<void()>> ways{
      [&] { MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
      [&] { MPI_Allreduce(x, y, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
      [&] { c.all_reduce(shared).wait(); }, [&] { c.all_reduce(own).wait(); }};
  int repeats = bytes <= 1 << 16 ? 300 : bytes <= 1 << 22 ? 60 : 15;
  std::vector<Times> times(ways.size());
  for (int i = -2; i < repeats; ++i)
    for (size_t w = 0; w < ways.size(); ++w)
      if (double t = timed(ways[w]); i >= 0) times[w].push_back(t);
  if (world.rank()) return;
  size_t best = quantile(times[0], .5) <= quantile(times[1], .5) ? 0 : 1;
  std::printf("%9lld B  MPI %9.1f us (%.1f-%.1f)", static_cast<long long>(bytes),
              quantile(times[best], .5), quantile(times[best], .25), quantile(times[best], .75));
  for (size_t w : {2, 3}) {
    Times ratio;
    for (size_t i = 0; i < times[w].size(); ++i) ratio.push_back(times[best][i] / times[w][i]);
    std::printf("  %s %9.1f us (%.1f-%.1f), x %.2f (%.2f-%.2f)", w == 2 ? "in place" : "copied",
                quantile(times[w], .5), quantile(times[w], .25), quantile(times[w], .75),
                quantile(ratio, .5), quantile(ratio, .25), quantile(ratio, .75));
  }
  std::printf("\n");
}

int run(int argc, char** argv) {
  World world(argc, argv);
  if (world.rank() == 0)
    std::printf("%d ranks, %d threads each; median (quartiles), ratio of pairs\n", world.size(),
                world.threads());
  for (int64_t bytes : {1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26})
    measure(world, bytes);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return triax::parallel::run_main(argc, argv, run); }
