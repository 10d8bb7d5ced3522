// A user's program: the Llama of the examples on the letters of a made-up text, with all that triax
// brings: train, parity, plan, resume, metrics, signals.
#include "examples/llama/llama.h"
#include "parallel/program/program.h"

using namespace triax;

/// Sample i is 32 letters of an endless text, from letter 7 i on.
struct Letters : nn::Samples {
  int64_t count() const override { return 5000; }
  nn::Batch batch(std::span<const int64_t> indices) const override {
    std::vector<int32_t> input, target;
    auto letter = [](int64_t at) { return int32_t((at * at / 11 + at % 5) % 27); };
    for (int64_t i : indices)
      for (int64_t t = 0; t < 32; ++t) {
        input.push_back(i < 0 ? 0 : letter(7 * i + t));
        target.push_back(i < 0 ? -1 : letter(7 * i + t + 1));
      }
    Shape shape{std::ssize(indices), 32};
    return {from_host(input, shape, cpu), from_host(target, shape, cpu)};
  }
  double weight(int64_t) const override { return 32; }
  std::string identity() const override { return "letters"; }
};

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
                      .samples = std::make_shared<Letters>(),
                      .held_out = std::make_shared<Letters>(),
                      .unit = "letters"};
  return parallel::program(
      argc, argv, {.name = "train_llama", .what = "Trains a Llama.", .train = train, .task = [&] {
                     return task;
                   }});
}
