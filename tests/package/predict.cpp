// predict RUN: what the Llama of train_llama.cpp expects behind each letter of a text, the same on
// any number of ranks.
#include <algorithm>
#include <cstdio>

#include "examples/llama/llama.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/train/step/replica.h"

using namespace triax;

int predict(int argc, char** argv) {
  constexpr int64_t letters = 32, vocab = 27;
  parallel::World world(argc, argv);
  parallel::Mesh mesh(world.comm(), {.tp = world.size()});
  auto build = [](const parallel::TensorParallel& tp) {
    return std::make_unique<Llama>(LlamaConfig{.layers = 2,
                                               .width = 32,
                                               .heads = 4,
                                               .kv_heads = 2,
                                               .hidden = 48,
                                               .context = letters,
                                               .vocab = vocab},
                                   tp);
  };
  std::vector<int32_t> text(letters);
  for (int64_t i = 0; i < letters; ++i) text[size_t(i)] = int32_t((i * i / 11 + i % 5) % vocab);
  nn::Batch batch{.input = from_host(text, {1, letters}, cpu), .first = nn::evaluation};
  auto options = parallel::inference_options(mesh.shape(), f32);
  auto facts = parallel::probe(build, batch, parallel::probe_options(options));
  parallel::Replica model(mesh, build, options, facts);
  auto checkpoint = parallel::open_checkpoint(argv[1], world.host());
  model.load(checkpoint);
  NoGrad guard;
  auto logits = model.predict(batch).to_host<float>();
  for (auto row = logits.begin(); world.rank() == 0 && row != logits.end(); row += vocab)
    std::printf("%d ", int(std::max_element(row, row + vocab) - row));
  return 0;
}

int main(int argc, char** argv) { return parallel::run_main(argc, argv, predict); }
