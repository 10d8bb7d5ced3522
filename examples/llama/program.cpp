#include "examples/llama/program.h"

#include <algorithm>

#include "triax/parallel/pipeline/schedule.h"

using namespace triax;

namespace {

/// A pipeline schedule of this program's own: 1F1B whose warm-up is twice as deep. More activations
/// are live, and slow links delay it less. One chunk per stage.
parallel::Actions eager_1f1b(const parallel::PipelineShape& shape, int stage) {
  using parallel::Action;
  parallel::Actions list;
  int warm = std::min(2 * (shape.stages - stage - 1), shape.micros);
  for (int m = 0; m < warm; ++m) list.push_back({Action::forward, 0, m});
  for (int m = warm; m < shape.micros; ++m) {
    list.push_back({Action::forward, 0, m});
    list.push_back({Action::backward, 0, m - warm});
  }
  for (int m = shape.micros - warm; m < shape.micros; ++m) list.push_back({Action::backward, 0, m});
  return list;
}

}  // namespace

parallel::ProgramOptions program_options(LlamaOptions& o) {
  parallel::TrainOptions train;
  train.lr.peak = 2e-3;
  train.step.schedules["eager-1f1b"] = eager_1f1b;
  parallel::Settings model = settings(o.model);
  auto task = [&o] {
    auto text = text::read(o.text, o.model.context, o.model.vocab);
    parallel::Task made = text.task();
    made.build = build_of(o.model, text.tokenizer);
    return made;
  };
  std::vector verbs{text::sample_verb("triax-llama", o.sample, llama_of)};
  for (auto& verb : text::data_verbs("triax-llama", o.data)) verbs.push_back(verb);
  hf::Architecture hub = llama_of_hugging_face(o.model, model);
  for (auto& verb : hf::conversion_verbs(hub)) verbs.push_back(verb);
  return {.name = "triax-llama",
          .what = "Trains a Llama on a text.",
          .train = train,
          .settings = parallel::joined({model, text::text_settings(o.text)}),
          .init = text::initial_tokenizer(o.text),
          .import =
              [](auto& path) {
                LlamaConfig plain;  // flags of this run are not of what is imported
                return hf::imported(llama_of_hugging_face(plain, settings(plain)), path);
              },
          .task = task,
          .plan_defaults = [&o](auto&) { o.text.shapes_only = true; },
          .evaluate_defaults = [&o] { o.text.val_fraction = 1; },
          .evaluate_settings = text::evaluate_settings(o.text),
          .plan_needs = {{"context", "1024"}, {"vocab", "50304", "data"}},
          .verbs = verbs};
}
