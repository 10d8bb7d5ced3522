// A Llama on any mesh: llama train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2 --zero 1
#include "examples/llama/llama.h"
#include "examples/llama/schedules.h"
#include "examples/text/text_data.h"
#include "parallel/program/program.h"

using namespace triax;

int main(int argc, char** argv) {
  LlamaConfig c;
  text::TextOptions data;
  parallel::TrainOptions train;
  train.lr.peak = 2e-3, train.lr.low = 2e-4;
  train.step.schedules["eager-1f1b"] = eager_1f1b;
  parallel::SettingGroup settings("Model");
  parallel::SettingTraits size{.range = {1, 1 << 24}};
  settings.add("layers", "N", "transformer blocks", &c.layers, size)
      .add("width", "N", "embedding size (d_model)", &c.width, size)
      .add("heads", "N", "query heads", &c.heads, size)
      .add("kv-heads", "N", "key-value heads", &c.kv_heads, size)
      .add("hidden", "N", "features of the MLP", &c.hidden, size)
      .add("context", "N", "context length in tokens", &c.context, size)
      .add(text::text_settings(data));
  auto task = [&] {
    check_heads(c);
    auto text = text::read(data, c.context);
    LlamaConfig model = c;
    model.vocab = text.tokenizer.size();
    parallel::Task made = text.task();
    made.build = [model](auto& tp) { return std::make_unique<Llama>(model, tp); };
    return made;
  };
  return parallel::program(argc, argv,
                           {.name = "llama",
                            .what = "Trains a Llama on the characters of a text.",
                            .train = train,
                            .settings = settings,
                            .task = task});
}
