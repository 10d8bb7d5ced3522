// Fit y = 3 a - 2 b + 1 from noisy points. Run alone, or with `mpirun -np 4`: every rank takes its
// share of the points and all end with the same line.
#include <fmt/core.h>

#include "triax/autograd/backward.h"
#include "triax/nn/linear.h"
#include "triax/optim/sgd.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/data/data_parallel.h"

using namespace triax;

int fit(int argc, char** argv) {
  parallel::World world(argc, argv);
  const int64_t points = 256, mine = points / world.size(), first = mine * world.rank();
  std::vector<float> xs, ys;
  for (int64_t i = first; i < first + mine; ++i) {
    double a = random::normal(1, uint64_t(i)), b = random::normal(2, uint64_t(i));
    xs.insert(xs.end(), {float(a), float(b)});
    ys.push_back(float(3 * a - 2 * b + 1 + 0.1 * random::normal(3, uint64_t(i))));
  }
  Tensor x = from_host(xs, {mine, 2}, cpu), y = from_host(ys, {mine, 1}, cpu);

  nn::Linear line(2, 1);
  parallel::DataParallel data(line, world.comm(), {.seed = 1});  // owns weights and gradients
  optim::Sgd sgd(data.slots(), {.momentum = 0.9});
  for (int step = 0; step < 100; ++step) {
    data.begin();
    backward(mse(line(x), y) / world.size());  // the sum over ranks is the mean over all points
    data.finish();
    sgd.step(0.05);
  }
  auto w = line.parameters()[0]->value.to_host<float>();
  auto b = line.parameters()[1]->value.to_host<float>();
  if (world.rank() == 0) fmt::print("y = {:.2f} a + {:.2f} b + {:.2f}\n", w[0], w[1], b[0]);
  return 0;
}

int main(int argc, char** argv) { return parallel::run_main(argc, argv, fit); }
