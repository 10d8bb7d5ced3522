// A Llama on any mesh: triax-llama train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2 --zero 1
#include "examples/llama/config.h"
#include "examples/llama/hugging_face.h"
#include "examples/llama/schedules.h"
#include "examples/text/make_shards.h"

using namespace triax;

int main(int argc, char** argv) {
  LlamaConfig c;
  text::TextOptions data;
  text::SampleOptions sample{.slide = 0};
  text::DataOptions shards;
  parallel::TrainOptions train;
  train.lr.peak = 2e-3;
  train.step.schedules["eager-1f1b"] = eager_1f1b;
  parallel::Settings model = settings(c);
  auto task = [&] {
    auto text = text::read(data, c.context, c.vocab);
    parallel::Task made = text.task();
    made.build = build_of(c, text.tokenizer);
    return made;
  };
  std::vector verbs{text::sample_verb("triax-llama", sample, llama_of)};
  for (auto& verb : text::data_verbs("triax-llama", shards)) verbs.push_back(verb);
  hf::Architecture hub = llama_of_hugging_face(c, model);
  for (auto& verb : hf::conversion_verbs(hub)) verbs.push_back(verb);
  return parallel::program(argc, argv,
                           {.name = "triax-llama",
                            .what = "Trains a Llama on a text.",
                            .train = train,
                            .settings = parallel::joined({model, text::text_settings(data)}),
                            .init = text::initial_tokenizer(data),
                            .import = [&](auto& path) { return hf::imported(hub, path); },
                            .task = task,
                            .plan_defaults = [&](auto&) { data.shapes_only = true; },
                            .evaluate_defaults = [&] { data.val_fraction = 1; },
                            .evaluate_settings = text::evaluate_settings(data),
                            .plan_needs = {{"context", "1024"}, {"vocab", "50304", "data"}},
                            .verbs = verbs});
}
