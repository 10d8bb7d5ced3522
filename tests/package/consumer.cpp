#include <cstdio>
#include <vector>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "core/tensor.h"

// d/dx of sum(x * x) at 3 is 6: headers, kernels and the engine of an installed triax at work.
int main() {
  triax::Tensor x = triax::from_host(std::vector<float>{1, 2, 3}, {3}, triax::Device{});
  triax::require_grad(x);
  triax::backward(triax::sum(x * x));
  float slope = triax::grad(x).to_host<float>()[2];
  std::printf("%g\n", slope);
  return slope == 6 ? 0 : 1;
}
