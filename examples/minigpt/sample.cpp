#include "examples/minigpt/sample.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/check.h"
#include "core/files.h"
#include "examples/minigpt/model.h"
#include "examples/text/tokenizer.h"
#include "parallel/train/replica.h"
#include "parallel/train/run_directory.h"

namespace triax::minigpt {
namespace {

/// The newest checkpoint of a run directory, or the one that is named.
parallel::Checkpoint open(const std::string& path, parallel::Communicator& ranks) {
  parallel::CheckpointDirectory run(path, ranks);
  if (run.steps().empty()) return parallel::Checkpoint::open(path, ranks);
  return *run.resume("auto");
}

/// A setting of the run that saved it; the file is not to be trusted.
int64_t number(const parallel::Checkpoint& c, const std::string& name, int64_t least = 1) {
  std::string text = parallel::saved_settings(c)[name];
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check_input(error == std::errc() && end == text.data() + text.size() && value >= least,
              Exit::data, "checkpoint {}: {} is `{}`; expected a whole number, {} or more",
              c.path(), name, printable(text), least);
  return value;
}

DType precision(const parallel::Checkpoint& c) {
  std::string text = parallel::saved_settings(c)["precision"];
  for (auto [name, dtype] : {std::pair{"\"fp32\"", f32}, {"\"bf16\"", bf16}, {"\"fp16\"", f16}})
    if (text == name) return dtype;
  fail(Exit::data, "checkpoint {}: precision is `{}`; expected fp32, bf16 or fp16", c.path(),
       printable(text));
}

/// Does it hold what --weights asks for?
void check_weights(const parallel::Checkpoint& c, parallel::Weights weights) {
  std::string average = parallel::saved_settings(c)["average"];
  check_input(weights == parallel::Weights::trained || (!average.empty() && average != "0.0"),
              Exit::config,
              "weights=average of checkpoint {}, whose run had none\n"
              "  Train with --average 0.999, or leave --weights out.",
              c.path());
}

void check_sample(const SampleConfig& c, int ranks) {
  check_input(!c.checkpoint.empty(), Exit::config,
              "checkpoint is not given\n  Add --checkpoint RUN/step-N.");
  check_input(!c.prompt.empty(), Exit::config,
              "prompt is empty\n  A model continues a text of one character at least.");
  parallel::check_shape({.pp = c.pp, .tp = c.tp}, ranks);
}

/// An index drawn from softmax(logits / temperature), among the `top_k` largest (0: all).
/// Temperature 0 takes the largest.
size_t draw(std::vector<double> logits, const SampleConfig& c, double uniform) {
  auto largest = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (c.temperature == 0) return largest;
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (c.top_k > 0 && size_t(c.top_k) < order.size()) order.resize(size_t(c.top_k));
  double total = 0, top = logits[largest];
  for (size_t i : order) total += logits[i] = std::exp((logits[i] - top) / c.temperature);
  double left = uniform * total;
  for (size_t i : order)
    if ((left -= logits[i]) <= 0) return i;
  return order.back();
}

}  // namespace

void sample(const SampleConfig& c, parallel::World& world) {
  check_sample(c, world.size());
  parallel::Checkpoint checkpoint = open(c.checkpoint, world.host());
  check_weights(checkpoint, c.weights);
  auto tokenizer = text::Tokenizer::from_json(checkpoint.state("tokenizer"), checkpoint.path());
  ModelConfig m{.layers = number(checkpoint, "layers"),
                .heads = number(checkpoint, "heads"),
                .width = number(checkpoint, "width"),
                .context = number(checkpoint, "context"),
                .vocab = text::vocabulary(number(checkpoint, "vocab", 0), tokenizer)};
  parallel::Mesh mesh(world.comm(), {.pp = c.pp, .tp = c.tp});
  parallel::Build build = [m](auto& tp) { return std::make_unique<Gpt>(m, tp); };
  auto options = parallel::inference_options(mesh.shape(), precision(checkpoint));
  nn::Batch one{.input = zeros({1, m.context}, i32, cpu), .first = nn::evaluation};
  parallel::Replica model(mesh, build, options,
                          parallel::probe(build, one, parallel::probe_options(options)));
  model.load(checkpoint, c.weights);

  NoGrad guard;
  std::vector<int32_t> text = tokenizer.encode(c.prompt);
  auto say = [&](const std::string& words) {
    if (world.rank() == 0) fmt::print("{}", words), std::fflush(stdout);
  };
  say(c.prompt);
  uint64_t key = random::key(uint64_t(c.seed), "sample");
  for (int64_t i = 0; i < c.tokens; ++i) {
    auto time = std::min(int64_t(text.size()), m.context);
    std::vector<int32_t> window(text.end() - time, text.end());
    Tensor logits =
        model.predict({.input = from_host(window, {1, time}, cpu), .first = nn::evaluation});
    auto last = logits.narrow(0, time - 1, 1).narrow(1, 0, tokenizer.size()).to(f64);
    auto next = draw(last.contiguous().to_host<double>(), c, random::uniform(key, uint64_t(i), 0));
    text.push_back(int32_t(next));  // the same on every rank
    say(tokenizer.decode(std::span(text).last(1)));
  }
  say("\n");
}

}  // namespace triax::minigpt
