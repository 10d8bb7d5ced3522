// Our all_reduce, reduce_scatter and all_gather against MPI's own, f32, in interleaved pairs: in
// place in shared memory, and of tensors outside it. Run, with the largest size in MiB and the most
// pairs of a size:
//   mpirun -np 2 --bind-to none build/bin/bench_all_reduce 64 300
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "triax/parallel/comm/launch/world.h"

namespace {

using namespace triax;
using namespace triax::parallel;
using Times = std::vector<double>;
using Calls = std::vector<std::function<void()>>;

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

void print(const char* name, const Times& t) {
  std::printf("  %s %9.1f us (%.1f-%.1f)", name, quantile(t, .5), quantile(t, .25),
              quantile(t, .75));
}

/// MPI's two ways, of which the faster counts, and two of ours.
void compare(const char* what, int64_t bytes, int most, const Calls& ways) {
  int repeats = std::min(most, bytes <= 1 << 16 ? 300 : bytes <= 1 << 22 ? 60 : 15);
  std::vector<Times> times(ways.size());
  for (int i = -2; i < repeats; ++i)
    for (size_t w = 0; w < ways.size(); ++w)
      if (double t = timed(ways[w]); i >= 0) times[w].push_back(t);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank) return;
  size_t best = quantile(times[0], .5) <= quantile(times[1], .5) ? 0 : 1;
  std::printf("%-14s %9lld B", what, static_cast<long long>(bytes));
  print("MPI", times[best]);
  for (size_t w : {2, 3}) {
    Times ratio;
    for (size_t i = 0; i < times[w].size(); ++i) ratio.push_back(times[best][i] / times[w][i]);
    print(w == 2 ? "in place" : "copied", times[w]);
    std::printf(", x %.2f (%.2f-%.2f)", quantile(ratio, .5), quantile(ratio, .25),
                quantile(ratio, .75));
  }
  std::printf("\n");
  std::fflush(stdout);
}

/// Of tensors of `bytes` on every rank; all_gather fills them, reduce_scatter reads them.
void measure(Communicator& c, int64_t bytes, int most) {
  int64_t each = bytes / 4 / c.size(), n = each * c.size();
  Tensor shared = c.empty({n}, f32), own = zeros({n}, f32, cpu), other = zeros({n}, f32, cpu);
  fill_(shared, 0);
  auto slice = [&](const Tensor& x) { return x.narrow(0, c.rank() * each, each); };
  Tensor mine = slice(shared), part = slice(other);
  void *x = own.data(), *y = other.data(), *piece = part.data(), *in_place = slice(own).data();
  int count = int(n), one = int(each);
  MPI_Comm all = MPI_COMM_WORLD;
  compare("all_reduce", bytes, most,
          {[=] { MPI_Allreduce(MPI_IN_PLACE, x, count, MPI_FLOAT, MPI_SUM, all); },
           [=] { MPI_Allreduce(x, y, count, MPI_FLOAT, MPI_SUM, all); },
           [&] { c.all_reduce(shared).wait(); }, [&] { c.all_reduce(own).wait(); }});
  compare("reduce_scatter", bytes, most,
          {[=] { MPI_Reduce_scatter_block(MPI_IN_PLACE, x, one, MPI_FLOAT, MPI_SUM, all); },
           [=] { MPI_Reduce_scatter_block(x, piece, one, MPI_FLOAT, MPI_SUM, all); },
           [&] { c.reduce_scatter(shared, mine).wait(); },
           [&] { c.reduce_scatter(own, part).wait(); }});
  compare("all_gather", bytes, most,
          {[=] { MPI_Allgather(MPI_IN_PLACE, one, MPI_FLOAT, x, one, MPI_FLOAT, all); },
           [=] { MPI_Allgather(in_place, one, MPI_FLOAT, y, one, MPI_FLOAT, all); },
           [&] { c.all_gather(mine, shared).wait(); },
           [&] { c.all_gather(slice(own), other).wait(); }});
}

int run(int argc, char** argv) {
  World world(argc, argv);
  if (world.rank() == 0)
    std::printf("%d ranks, %d threads each, %s; median (quartiles), ratio of pairs\n", world.size(),
                world.threads(), world.comm().transport());
  int64_t largest = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  for (int64_t bytes = 1 << 16; bytes <= largest; bytes *= bytes < 1 << 20 ? 16 : 4)
    measure(world.comm(), bytes, argc > 2 ? std::atoi(argv[2]) : 300);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return triax::parallel::run_main(argc, argv, run); }
