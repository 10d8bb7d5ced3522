// A user's program for several ranks that is compiled without optimisation: an untrained Llama on the tensor-parallel ranks
// there are predicts, and all of them get the same.
#include <cstdio>

#include "core/check.h"
#include "examples/llama/llama.h"
#include "parallel/comm/launch/world.h"
#include "parallel/train/replica.h"

using namespace triax;

int main(int argc, char** argv) {
  return parallel::run_main(argc, argv, [](int argc, char** argv) {
    parallel::World world(argc, argv);
    parallel::Mesh mesh(world.comm(), {.tp = world.size()});
    auto build = [](parallel::TensorParallel& tp) {
      LlamaConfig c{.layers = 2, .width = 32, .heads = 4, .kv_heads = 4, .hidden = 64, .context = 32, .vocab = 27};
      return std::make_unique<Llama>(c, tp);
    };
    nn::Batch text{.input = zeros({1, 32}, DType::i32, cpu), .first = nn::evaluation};
    auto options = parallel::inference_options(mesh.shape(), f32);
    parallel::Replica model(mesh, build, options, parallel::probe(build, text, parallel::probe_options(options)));
    NoGrad guard;
    double sum = model.predict(text).to_host<float>().front();
    if (world.rank() == 0) std::printf("%d ranks predict %.5f\n", world.size(), sum);
    return 0;
  });
}
