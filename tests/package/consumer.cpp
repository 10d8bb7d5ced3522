// A program of a user of triax: fits y = 2x - 1, with a layer that would be split over ranks.
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/device.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/tensor/linear.h"

using namespace triax;

struct Line : nn::Module {
  explicit Line(const parallel::TensorParallel& tp)
      : map(child<parallel::ColumnLinear>("map", 1, 1, tp)) {}
  Tensor operator()(const Tensor& x) const { return map(x); }
  parallel::ColumnLinear& map;
};

int main() {
  static_assert(own_devices == 1);  // of this project's core/device.h
  Tensor x = from_host(std::vector<float>{-2, -1, 0, 1, 2}, {5, 1}, cpu);
  Tensor y = x * 2 - 1;

  auto alone = parallel::single_rank();
  Line line{parallel::TensorParallel(*alone)};
  line.materialize(cpu, DType::f32, /*seed=*/1);
  for (int step = 0; step < 100; ++step) {
    backward(mse(line(x), y));
    for (nn::Parameter* p : line.parameters()) {
      NoGrad plain;
      copy_(p->value, p->value - 0.1 * grad(p->value));
      grad(p->value) = {};
    }
  }

  double weight = line.parameters()[0]->value.item(), bias = line.parameters()[1]->value.item();
  std::printf("y = %.4f x + %.4f\n", weight, bias);
  return std::abs(weight - 2) < 1e-4 && std::abs(bias + 1) < 1e-4 ? 0 : 1;
}
