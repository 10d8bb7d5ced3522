#include "examples/text/sample.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "examples/text/tokenizer/numbers.h"
#include "examples/text/tokenizer/utf8.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/stop_signal.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/runs/initial_weights.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::text {
namespace {

void check_prompt(const std::string& prompt) {
  check_input(!prompt.empty(), Exit::config,
              "prompt is empty\n  A model continues a text of one character at least.");
}

void check_sample(const SampleOptions& o, int ranks) {
  check_input(!o.checkpoint.empty(), Exit::config,
              "checkpoint is not given\n  Add --checkpoint RUN/step-N, or RUN.");
  check_prompt(o.prompt);
  check_input(!o.interactive || o.prompt != "-", Exit::config,
              "prompt=- with interactive\n  Both read standard input. Expected one of them.");
  check_input(!o.interactive || o.samples == 1, Exit::config,
              "samples={} with interactive\n  Each line has one answer. Leave --samples out.",
              o.samples);
  parallel::check_shape({.pp = o.pp, .tp = o.tp}, ranks);
}

/// The time between messages of a first rank that waits: humans take longer than ranks may wait.
constexpr int look_every_ms = 5000;

// The first byte of each message of the first rank to the others.
constexpr char nothing_yet = '.', line_follows = ':', end_of_input = '!';

/// Appends available input. Returns false at its end.
bool read_some(std::string& to) {
  char bytes[4096];
  ssize_t n = ::read(STDIN_FILENO, bytes, sizeof bytes);
  if (n < 0 && errno == EINTR) return true;
  check_input(n >= 0, Exit::io, "standard input: {}", std::strerror(errno));
  to.append(bytes, size_t(n));
  return n > 0;
}

/// Lines of standard input: the first rank reads, all get them.
class Lines {
 public:
  explicit Lines(parallel::Communicator& ranks) : ranks_(ranks) {}
  /// Returns a line without its break; none at the end of the input. Collective.
  std::optional<std::string> next() {
    std::string told;
    do told = parallel::text_of_first(ranks_, [&] { return look(); });
    while (told[0] == nothing_yet);
    if (told[0] == end_of_input) return {};
    return told.substr(1);
  }

 private:
  std::string look() {
    size_t end = read_.find('\n');
    if (end == read_.npos && !ended_) {
      pollfd input{STDIN_FILENO, POLLIN, 0};
      if (::poll(&input, 1, look_every_ms) > 0) ended_ = !read_some(read_);
      end = read_.find('\n');
    }
    if (end == read_.npos && !ended_) return {nothing_yet};
    if (end == read_.npos && read_.empty()) return {end_of_input};
    std::string line = line_follows + read_.substr(0, end);
    read_.erase(0, end == read_.npos ? end : end + 1);
    return line;
  }

  parallel::Communicator& ranks_;
  std::string read_;  // bytes not given out yet
  bool ended_ = false;
};

/// Returns all of standard input, on every rank. Collective. Throws Error 74 if it cannot be read.
std::string all_of_stdin(parallel::Communicator& ranks) {
  return parallel::text_of_first(ranks, [] {
    std::string all;
    while (read_some(all)) continue;
    return all;
  });
}

/// Continues texts, on all ranks alike; the first prints.
class Writer {
 public:
  Writer(const SampleOptions& o, parallel::World& world, const Tokenizer& tokenizer,
         Decoder& decoder)
      : o_(o), world_(world), tokenizer_(tokenizer), decoder_(decoder) {}

  /// Writes text `number` from the prompt.
  void tell(const std::string& prompt, int64_t number) {
    Window text = window();
    std::vector<int32_t> tokens = tokenizer_.encode(prompt, {"prompt"});
    check_input(
        !tokens.empty(), Exit::config,
        "prompt has no tokens\n  The model came without a tokenizer: expected numbers, such "
        "as --prompt \"464 3290\".");
    if (number == 0 && world_.rank() == 0 && std::ssize(tokens) > decoder_.context())
      fmt::print(stderr, "the prompt has {} tokens; the model sees the last {}\n", tokens.size(),
                 decoder_.context());
    text.append(tokens);
    say(prompt);
    go_on(text, number, [] { return false; });
  }

  /// Writes a text that goes on with each line of standard input. The prompt begins it.
  void talk(const std::string& prompt) {
    Window text = window();
    text.append(tokenizer_.encode(prompt, {"prompt"}));
    Lines lines(world_.host());
    std::string between;  // not in front of the first line
    int64_t turn = 0;
    while (auto line = next(lines)) {
      if (!append(text, between, *line) || text.seen().empty()) continue;
      std::optional<parallel::StopSignal> ctrl_c;
      if (world_.rank() == 0) ctrl_c.emplace(std::vector{SIGINT});
      go_on(text, turn++, [&] { return interrupted(); });
      between = knows_line_breaks() ? "\n" : "";
    }
    if (isatty(STDIN_FILENO)) say("\n");
  }

 private:
  Window window() const {
    int64_t context = decoder_.context(), half = std::max<int64_t>(1, context / 2);
    return {context, o_.slide == 0 ? half : std::min(o_.slide, context)};
  }

  void go_on(Window& text, int64_t number, const std::function<bool()>& stopped) {
    Utf8Stream stream;
    for (int64_t i = 0; i < o_.tokens && !stopped(); ++i) {
      Tensor logits = decoder_.logits(text.seen()).narrow(1, 0, tokenizer_.size());
      double uniform = random::uniform(key_, uint64_t(i), uint64_t(number));
      auto next = int32_t(draw(logits.to(f64).to_host<double>(), o_.sampling, uniform));
      text.append(std::span(&next, 1));  // the same on every rank
      say(stream.add(tokenizer_.decode(std::span(&next, 1))));
    }
    say(stream.end() + "\n");
  }

  std::optional<std::string> next(Lines& lines) const {
    if (isatty(STDIN_FILENO)) say("> ");
    return lines.next();
  }

  /// Appends a typed line; returns false for a wrong one, which ends nothing.
  bool append(Window& text, const std::string& between, const std::string& line) const {
    try {
      (void)tokenizer_.encode(line, {"line"});  // messages count from its first byte
      std::vector<int32_t> tokens;
      tokenizer_.encode({.text = between + line, .is_rest = !text.seen().empty()}, tokens);
      text.append(tokens);
      return true;
    } catch (const Error& e) {
      if (world_.rank() == 0) fmt::print(stderr, "{}\n", e.what());
      return false;
    }
  }

  bool knows_line_breaks() const {
    try {
      return !tokenizer_.encode("\n").empty();
    } catch (const Error&) {
      return false;
    }
  }

  /// True if the first rank saw Ctrl-C.
  bool interrupted() const {
    auto seen = [] { return std::string(parallel::StopSignal::seen() ? "yes" : ""); };
    return !parallel::text_of_first(world_.host(), seen).empty();
  }

  void say(const std::string& text) const {
    if (world_.rank() == 0) fmt::print("{}", text), std::fflush(stdout);
  }

  const SampleOptions& o_;
  parallel::World& world_;
  const Tokenizer& tokenizer_;
  Decoder& decoder_;
  uint64_t key_ = random::key(uint64_t(o_.seed), "sample");
};

/// Returns a function of a rank: tokens in order of falling logits, equal ones in their own; sorted
/// as far as they are asked for, since few of a large vocabulary are.
auto ranking_of(const std::vector<double>& logits) {
  auto less = [&logits](size_t a, size_t b) {
    return logits[a] != logits[b] ? logits[a] < logits[b] : a > b;
  };
  std::vector<size_t> heap(logits.size());
  std::iota(heap.begin(), heap.end(), size_t{0});
  std::ranges::make_heap(heap, less);
  return [less, heap = std::move(heap), ranked = std::vector<size_t>()](size_t rank) mutable {
    for (; ranked.size() <= rank; heap.pop_back()) {
      std::ranges::pop_heap(heap, less);
      ranked.push_back(heap.back());
    }
    return ranked[rank];
  };
}

}  // namespace

void check_stored(const parallel::Checkpoint& checkpoint, const std::string& tensor,
                  const Shape& shape) {
  auto found = checkpoint.tensors().find(tensor);
  bool there = found != checkpoint.tensors().end();
  check_input(there && found->second.full == shape, Exit::data,
              "checkpoint {}: its settings describe a tensor {} {}; its files hold {}",
              checkpoint.path(), tensor, shape, there ? str(found->second.full) : "none");
}

Tokenizer tokenizer_of(const parallel::Checkpoint& c) {
  if (c.state().contains("tokenizer")) return Tokenizer::from_json(c.state("tokenizer"), c.path());
  int64_t rows = 0;
  std::string text = parallel::saved_settings(c)["vocab"];
  check_input(parse_number(text, rows) && rows > 0 && rows <= parallel::huge, Exit::data,
              "checkpoint {}: it has no tokenizer, and vocab is `{}`; expected a number of tokens",
              c.path(), printable(text));
  return Tokenizer(std::make_shared<Numbers>(rows));
}

std::unique_ptr<parallel::Replica> load_model(parallel::Checkpoint& checkpoint,
                                              const TextModel& model, parallel::Mesh& mesh,
                                              parallel::Weights weights,
                                              std::optional<DType> precision) {
  parallel::TrainOptions trained;
  parallel::restore(only(train_settings(trained), {"precision"}), checkpoint);
  DType saved = trained.step.dtype;
  auto options = parallel::inference_options(mesh.shape(), precision.value_or(saved));
  nn::Batch one{.input = zeros({1, model.context}, i32, cpu), .first = nn::evaluation};
  auto replica = std::make_unique<parallel::Replica>(
      mesh, model.build, options,
      parallel::probe(model.build, one, parallel::probe_options(options)));
  replica->load(checkpoint, weights, saved);
  return replica;
}

void sample(const SampleOptions& o, const TextModelOf& model_of, parallel::World& world) {
  check_sample(o, world.size());
  parallel::Checkpoint checkpoint = parallel::open_checkpoint(o.checkpoint, world.host());
  parallel::check_weights(checkpoint, o.weights);
  auto tokenizer = tokenizer_of(checkpoint);
  TextModel model = model_of(checkpoint, tokenizer);
  parallel::Mesh mesh(world.comm(), {.pp = o.pp, .tp = o.tp});
  auto replica = load_model(checkpoint, model, mesh, o.weights, o.precision);

  NoGrad guard;
  Decoder decoder(*replica, model.context);
  Writer writer(o, world, tokenizer, decoder);
  std::string prompt = o.prompt == "-" ? all_of_stdin(world.host()) : o.prompt;
  check_prompt(prompt);
  if (o.interactive) return writer.talk(prompt);
  for (int64_t i = 0; i < o.samples; ++i) {
    if (i > 0 && world.rank() == 0) fmt::print("---\n");
    writer.tell(prompt, i);
  }
}

Tensor Decoder::logits(std::span<const int32_t> tokens) {
  check(!tokens.empty() && std::ssize(tokens) <= context(), "decoder: {} tokens; expected 1 to {}",
        tokens.size(), context());
  auto shared = std::mismatch(tokens.begin(), tokens.end(), read_.begin(), read_.end()).first;
  // The last token is read in any case: its logits are asked for.
  auto known = std::min<int64_t>(shared - tokens.begin(), std::ssize(tokens) - 1);
  cache_.truncate(known);
  auto fresh = tokens.subspan(size_t(known));
  read_.assign(tokens.begin(), tokens.end());
  computed_ += std::ssize(fresh);
  return model_.predict({.input = from_host(fresh, {1, std::ssize(fresh)}, cpu),
                         .first = nn::evaluation,
                         .cache = &cache_});
}

void Window::append(std::span<const int32_t> tokens) {
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.end());
  auto all = std::ssize(tokens_);
  if (all - begin_ > context_) begin_ = std::max(begin_ + slide_, all - context_);
}

size_t draw(const std::vector<double>& logits, const Sampling& how, double uniform) {
  check_input(std::none_of(logits.begin(), logits.end(), [](double x) { return std::isnan(x); }),
              Exit::non_finite, "sample: a logit is not a number; expected a model that is finite");
  auto largest = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  if (how.temperature == 0) return largest;
  std::vector<double> weights;
  for (double x : logits) weights.push_back(std::exp((x - logits[largest]) / how.temperature));
  auto ranking = ranking_of(logits);
  size_t count = logits.size();
  double total = 0;
  if (how.top_k > 0 && size_t(how.top_k) < count) {
    count = size_t(how.top_k);
    for (size_t i = 0; i < count; ++i) total += weights[ranking(i)];
  } else {
    for (double weight : weights) total += weight;
  }
  if (how.top_p < 1) {
    double enough = how.top_p * total;
    size_t kept = 0;
    for (total = 0; kept < count && total < enough; ++kept) total += weights[ranking(kept)];
    count = kept;
  }
  double left = uniform * total;
  for (size_t i = 0; i + 1 < count; ++i)
    if ((left -= weights[ranking(i)]) <= 0) return ranking(i);
  return ranking(count - 1);
}

}  // namespace triax::text
