#include "examples/minigpt/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/check.h"
#include "core/files.h"
#include "examples/minigpt/pieces.h"
#include "examples/minigpt/replica.h"
#include "examples/minigpt/tokenizer.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/comm/together.h"

namespace triax::minigpt {
namespace {

/// The newest checkpoint of a run directory, or the one that is named.
parallel::Checkpoint open(const std::string& path, parallel::Communicator& ranks) {
  parallel::CheckpointDirectory run(path, ranks);
  if (run.steps().empty()) return parallel::Checkpoint::open(path, ranks);
  return *run.resume("auto");
}

/// A size of the model; the file is not to be trusted.
int64_t number(const parallel::Checkpoint& c, const std::string& key) {
  const std::string& text = c.state(key);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check_input(error == std::errc() && end == text.data() + text.size() && value >= 1, Exit::data,
              "checkpoint {}: {} is `{}`; expected a whole number, 1 or more", c.path(), key,
              printable(text));
  return value;
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

/// What this rank's stage and slice hold of the weights.
std::vector<parallel::Piece> weights(Replica& replica) {
  std::vector<parallel::Piece> all;
  auto slots = replica.data().slots();
  for (size_t i = 0; i < slots.size(); ++i)
    add_pieces(all, replica.data(), {i, slots[i].weight, ""}, Holder::any);
  return all;
}

}  // namespace

void sample(SampleConfig c, parallel::Communicator& world, parallel::Communicator& host) {
  c.mesh.dp = std::max<int64_t>(1, c.mesh.dp);
  validate(c, world.size());
  parallel::Checkpoint checkpoint = open(c.checkpoint, host);
  auto tokenizer = Tokenizer::from_json(checkpoint.state("tokenizer"), checkpoint.path());
  ModelConfig m{.layers = number(checkpoint, "layers"),
                .heads = number(checkpoint, "heads"),
                .width = number(checkpoint, "width"),
                .context = number(checkpoint, "context"),
                .vocab = number(checkpoint, "vocab")};
  parallel::Mesh mesh(world, {.pp = int(c.mesh.pp), .tp = int(c.mesh.tp)});
  Replica replica(m, checkpoint.state("precision"), mesh);
  checkpoint.load(weights(replica), parallel::Unclaimed::ignore);

  NoGrad guard;
  std::vector<int32_t> text = tokenizer.encode(c.prompt);
  auto say = [&](const std::string& words) {
    if (world.rank() == 0) fmt::print("{}", words), std::fflush(stdout);
  };
  say(c.prompt);
  uint64_t key = random::key(c.seed, "sample");
  for (int64_t i = 0; i < c.tokens; ++i) {
    auto time = std::min(int64_t(text.size()), m.context);
    std::vector<int32_t> window(text.end() - time, text.end());
    Tensor logits = replica.logits({from_host(window, {time}, cpu), {}, time, nn::evaluation});
    auto last = logits.narrow(0, time - 1, 1).narrow(1, 0, tokenizer.size()).to(f64);
    auto next = draw(last.contiguous().to_host<double>(), c, random::uniform(key, uint64_t(i), 0));
    text.push_back(int32_t(next));  // the same on every rank
    say(tokenizer.decode(std::span(text).last(1)));
  }
  say("\n");
}

void sample(const SampleConfig& c) {
  auto alone = parallel::single_rank();
  sample(c, *alone, *alone);
}

}  // namespace triax::minigpt
