// A program that owns MPI: triax is a guest on half of its ranks, and on all of them at the same
// time.
#define OMPI_SKIP_MPICXX
#include <mpi.h>

#include <cstdio>
#include <exception>

#include "tests/parallel/collective_cases.h"
#include "triax/core/check.h"
#include "triax/parallel/comm/launch/world.h"

namespace triax::parallel {
namespace {

using namespace cases;

double sum_over(Communicator& c, double mine) {
  Tensor x = full({3}, mine, f64, cpu);
  c.all_reduce(x).wait();
  return x.to_host<double>()[2];
}

void expect_refused(int& argc, char**& argv, int mpi, const char* why) {
  try {
    World world(argc, argv, {.mpi = mpi});
  } catch (const Error& e) {
    check(e.code() == Exit::config && std::string(e.what()).find(why) < 100, "{}", e.what());
    return;
  }
  fail(Exit::internal, "a World although {}", why);
}

void guests(int& argc, char**& argv) {
  int rank = 0, size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm half = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);  // the last rank becomes the first
  {
    World mine(argc, argv, {.mpi = MPI_Comm_c2f(half)}), all(argc, argv);
    check(all.rank() == rank && all.size() == size && mine.size() == size / 2 &&
              mine.rank() == (size - 1 - rank) / 2,
          "ranks {} of {} and {} of {}", all.rank(), all.size(), mine.rank(), mine.size());
    double odd = 0, sum = size * (size - 1) / 2.;
    for (int r = rank % 2; r < size; r += 2) odd += r;
    check(sum_over(mine.comm(), rank) == odd && sum_over(all.comm(), rank) == sum, "wrong sums");
    if (rank % 2 == 0)  // the other half waits meanwhile
      for (const CollectiveCase& c : collective_cases()) c.run(mine.comm());
    check(sum_over(all.host(), rank) == sum, "a wrong sum");
  }
  int sum = 0;  // MPI and the program's communicator live on
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
  MPI_Comm_free(&half);
  if (rank == 0) std::printf("guests of %d ranks of MPI\n", size);
}

}  // namespace
}  // namespace triax::parallel

int main(int argc, char** argv) try {
  using triax::parallel::expect_refused;
  expect_refused(argc, argv, 0, "MPI does not run");
  int given = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given);
  expect_refused(argc, argv, MPI_Comm_c2f(MPI_COMM_NULL), "MPI_COMM_NULL");
  triax::parallel::guests(argc, argv);
  return MPI_Finalize();
} catch (const std::exception& e) {
  std::fprintf(stderr, "triax: error: %s\n", e.what());
  return 1;
}
