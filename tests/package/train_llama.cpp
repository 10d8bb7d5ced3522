// A user's program: the Llama of the examples on the letters of a made-up text, with all that triax
// brings: train, parity, plan, resume, metrics, signals.
#include "examples/llama/llama.h"
#include "triax/parallel/program/program.h"

using namespace triax;

/// Sample i is 32 letters of an endless text, from letter 7 i on.
std::shared_ptr<nn::Samples> letters(int64_t count) {
  std::vector<int32_t> input, target;
  auto letter = [](int64_t at) { return int32_t((at * at / 11 + at % 5) % 27); };
  for (int64_t i = 0; i < count; ++i)
    for (int64_t at = 7 * i; at < 7 * i + 32; ++at) {
      input.push_back(letter(at));
      target.push_back(letter(at + 1));
    }
  Shape shape{count, 32};
  return std::make_shared<nn::TensorSamples>(from_host(input, shape, cpu),
                                             from_host(target, shape, cpu));
}

int main(int argc, char** argv) {
  LlamaConfig c{.layers = 2,
                .width = 32,
                .heads = 4,
                .kv_heads = 2,
                .hidden = 48,
                .context = 32,
                .vocab = 27};
  parallel::TrainOptions train;
  train.steps = 10;
  train.step.micro_batch = 2, train.step.global_batch = 8;
  parallel::Task task{.build = [c](auto& tp) { return std::make_unique<Llama>(c, tp); },
                      .samples = letters(5000),
                      .held_out = letters(5000),
                      .unit = "letters"};
  return parallel::program(
      argc, argv, {.name = "train_llama", .what = "Trains a Llama.", .train = train, .task = [&] {
                     return task;
                   }});
}
