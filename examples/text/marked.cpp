#include "examples/text/marked.h"

#include <algorithm>
#include <cmath>

#include "examples/text/tokenizer/bpe.h"
#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"

namespace triax::text {
namespace {

constexpr uint64_t longest_lines = uint64_t{2} << 30;

/// Calls `read` with every line that is not empty; messages name the file and the number.
void each_line(const std::string& path, const std::function<void(const nn::JsonReader&)>& read) {
  int64_t number = 0;
  for (auto& line : parts_of(disk().read(path, longest_lines), '\n'))
    if (++number; line.find_first_not_of(" \r\t") != std::string::npos)
      read(nn::JsonReader(line, fmt::format("{} line {}", path, number), "the line", 32));
}

/// Returns the tokens of a question with an ending, which counts: the tokens behind as many as the
/// question alone has.
MarkedTokens with_ending(std::vector<int32_t> all, int64_t question, const nn::JsonReader& line,
                         int64_t context) {
  int64_t ending = std::ssize(all) - question;
  line.require(question > 0 && ending > 0 && ending <= context,
               fmt::format("has a question of {} and an ending of {} tokens; expected 1 or more, "
                           "and 1 to {}",
                           question, ending, context));
  all.erase(all.begin(), all.begin() + std::max<int64_t>(0, std::ssize(all) - context - 1));
  std::vector<bool> counts(all.size(), true);
  std::fill(counts.begin(), counts.end() - ending, false);
  return {std::move(all), std::move(counts)};
}

/// Returns -log p(target) of a row of logits.
double loss_of(const float* logits, int64_t classes, int32_t target) {
  float top = *std::max_element(logits, logits + classes);
  double sum = 0;
  for (int64_t i = 0; i < classes; ++i) sum += std::exp(double(logits[i] - top));
  return std::log(sum) - double(logits[target] - top);
}

/// A question as a score sees it, and what a right choice adds.
struct Question {
  int64_t endings, context;
  double unit;
};

/// Adds up the questions whose first ending has the least loss.
double right_choices(const Tensor& prediction, const Tensor& target, const Question& q,
                     bool by_mean) {
  const int64_t samples = target.size(0), rows = target.numel(), classes = prediction.size(1),
                endings = q.endings;
  check_input(
      samples % endings == 0 && target.size(1) == q.context, Exit::config,
      "choices: {} samples of {} tokens at once; expected whole questions of {} endings, of "
      "{} tokens\n  Take a multiple of {} as --micro-batch, and leave --bitwise and --cp out.",
      samples, target.size(1), endings, q.context, endings);
  auto logits = prediction.to(f32).to_host<float>();
  auto targets = target.to_host<int32_t>();
  std::vector<double> losses(size_t(samples), 0);
  bool blank = true;
  double right = 0;
  for (int64_t s = 0; s < samples; ++s) {
    int64_t count = 0;
    for (int64_t r = s * rows / samples; r < (s + 1) * rows / samples; ++r)
      if (int32_t t = targets[size_t(r)]; t >= 0)
        losses[size_t(s)] += loss_of(&logits[size_t(r * classes)], classes, t), ++count;
    if (by_mean && count > 0) losses[size_t(s)] /= double(count);
    blank = s % endings == 0 ? count == 0 : blank;
    if (s % endings != endings - 1 || blank) continue;
    auto first = losses.begin() + (s + 1 - endings), end = losses.begin() + (s + 1);
    right += std::all_of(first + 1, end, [&](double other) { return *first < other; });
  }
  return right * q.unit;
}

/// A conversation as one text, as its tokens spell it, and the bytes of its answers.
struct Rendered {
  const Tokenizer& tokenizer;
  std::string text = {};
  std::vector<std::pair<size_t, size_t>> answers = {};

  enum class Part { said, answer };
  void add(std::string part, Part what) {
    part = tokenizer.normal(part);
    if (what == Part::answer) answers.emplace_back(text.size(), text.size() + part.size());
    text += part;
  }
};

/// The tokens around a message in a form.
struct Form {
  std::string begin, before_role, behind_role, end, behind_end;
};
Form form_of(Chat chat) {
  if (chat == Chat::chatml) return {"", "<|im_start|>", "\n", "<|im_end|>", "\n"};
  return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", ""};
}

std::string trimmed(const std::string& text) {
  size_t first = text.find_first_not_of(" \t\n\r"), last = text.find_last_not_of(" \t\n\r");
  return first == std::string::npos ? "" : text.substr(first, last + 1 - first);
}

Rendered rendered(const nn::JsonReader& line, Chat chat, const Tokenizer& tokenizer) {
  using enum Rendered::Part;
  Rendered all{tokenizer};
  if (chat == Chat::plain) {
    std::string end;
    for (const char* token : {"<|endoftext|>", "</s>"})
      if (end.empty() && tokenizer.token(token)) end = token;
    all.add(line.at("prompt").text(), said);
    all.add(line.at("completion").text() + end, answer);
    return all;
  }
  Form form = form_of(chat);
  auto message = [&](const std::string& role, std::string content, Rendered::Part what) {
    if (chat == Chat::llama3) content = trimmed(content);
    all.add(form.before_role + role + form.behind_role, said);
    all.add(content + form.end, what);
    all.add(form.behind_end, said);
  };
  all.add(form.begin, said);
  if (line.has("messages"))
    for (auto& m : line.at("messages").elements(1 << 16)) {
      bool calls = m.has("tool_calls") && !m.at("tool_calls").is_null() &&
                   m.at("tool_calls").literal() != "[]";
      m.require(!calls, "has tool_calls, which no form here has; expected content");
      bool weighs = !m.has("weight") || m.at("weight").is_null() || m.at("weight").real() != 0;
      bool counts = weighs && m.at("role").text() == "assistant";
      message(m.at("role").text(), m.at("content").text(), counts ? answer : said);
    }
  else
    message("user", line.at("prompt").text(), said),
        message("assistant", line.at("completion").text(), answer);
  return all;
}

/// Returns where a token ends in a text that begins at `at` and is spelled by it
/// (Tokenizer::normal).
size_t end_of(const std::string& token, std::string_view text, size_t at) {
  auto begins = [&](std::string_view part) {
    return text.substr(std::min(at, text.size())).starts_with(part);
  };
  if (begins(token)) return at + token.size();
  for (char c : token)
    if (c != ' ') ++at;
    else if (begins(shown_space)) at += shown_space.size();
    else at += begins(" ");  // else put there by the tokenizer
  return at;
}

/// Marks the tokens that begin within an answer: tokens are bytes of the text, one behind another.
MarkedTokens marked(const Rendered& r, const nn::JsonReader& line) {
  MarkedTokens all{r.tokenizer.encode(r.text, {"chat"}), {}};
  size_t at = 0;
  for (int32_t token : all.tokens) {
    all.counts.push_back(std::ranges::any_of(
        r.answers, [at](auto& part) { return part.first <= at && at < part.second; }));
    at = end_of(r.tokenizer.decode({&token, 1}), r.text, at);
  }
  line.require(at == r.text.size(),
               fmt::format("has a text of {} bytes, and tokens of {}; expected a tokenizer whose "
                           "tokens spell the text",
                           r.text.size(), at));
  return all;
}

}  // namespace

nn::Batch Marked::batch(std::span<const int64_t> indices) const {
  auto length = size_t(context_);
  std::vector<int32_t> input(indices.size() * length, 0), target(input.size(), -1);
  for (size_t k = 0; k < indices.size(); ++k) {
    if (indices[k] < 0) continue;
    auto& [tokens, counts] = all_.at(size_t(indices[k]));
    for (size_t i = 0; i + 1 < tokens.size(); ++i) {
      input[k * length + i] = tokens[i];
      if (counts[i + 1]) target[k * length + i] = tokens[i + 1];
    }
  }
  Shape shape{std::ssize(indices), context_};
  return {from_host(input, shape, cpu), from_host(target, shape, cpu)};
}

double Marked::weight(int64_t index) const {
  auto& counts = all_.at(size_t(index)).counts;
  return double(std::count(counts.begin() + 1, counts.end(), true));
}

std::string Marked::identity() const {
  uint32_t sum = 0;
  for (auto& [tokens, counts] : all_) {
    sum = crc32c(tokens.data(), tokens.size() * sizeof(int32_t), sum);
    for (bool counted : counts) sum = crc32c(&counted, 1, sum);
  }
  return fmt::format("{} sequences, crc32c {:08x}, context {}", all_.size(), sum, context_);
}

Choices read_choices(const std::string& path, const Tokenizer& tokenizer, int64_t context) {
  std::vector<MarkedTokens> all;
  Choices made;
  each_line(path, [&](const nn::JsonReader& line) {
    std::string question = line.at("ctx").text();
    int64_t tokens = std::ssize(tokenizer.encode(question));
    auto endings = line.at("endings").elements(64);
    if (made.endings == 0) made.endings = std::ssize(endings);
    line.require(std::ssize(endings) == made.endings && made.endings > 1,
                 fmt::format("has {} endings; expected {}", endings.size(),
                             made.endings > 1 ? std::to_string(made.endings) : "2 or more"));
    auto label = line.at("label");
    uint64_t right = 0;
    if (label.is_text()) label.require(parse_number(label.text(), right), "is no number");
    else right = label.number();
    label.require(right < endings.size(), fmt::format("is {}; expected an ending", right));
    std::rotate(endings.begin(), endings.begin() + ptrdiff_t(right),
                endings.begin() + ptrdiff_t(right) + 1);
    for (auto& ending : endings)
      all.push_back(
          with_ending(tokenizer.encode(question + " " + ending.text()), tokens, line, context));
  });
  check_input(!all.empty(), Exit::data, "choices: {} has no lines; expected questions", path);
  double targets = 0, questions = double(all.size()) / double(made.endings);
  made.samples = std::make_shared<Marked>(std::move(all), context);
  for (int64_t i = 0; i < made.samples->count(); ++i) targets += made.samples->weight(i);
  Question q{made.endings, context, targets / questions};  // scores are means over targets
  for (bool by_mean : {false, true})
    made.scores[by_mean ? "acc_norm" : "acc"] = [=](auto& p, auto& t) {
      return right_choices(p, t, q, by_mean);
    };
  return made;
}

std::vector<MarkedTokens> read_conversations(const std::string& path, const Tokenizer& tokenizer,
                                             Chat form, int64_t context, std::string& said) {
  if (Form f = form_of(form); form != Chat::plain)
    for (std::string token : {f.begin, f.before_role, trimmed(f.behind_role), f.end})
      check_input(token.empty() || tokenizer.token(token), Exit::config,
                  "chat: the tokenizer has no token {}\n  Take another --chat: plain needs none.",
                  token);
  std::vector<MarkedTokens> all;
  int64_t lines = 0;
  each_line(path, [&](const nn::JsonReader& line) {
    MarkedTokens one = marked(rendered(line, form, tokenizer), line);
    auto kept = std::min(one.tokens.size(), size_t(context) + 1);
    one.tokens.resize(kept), one.counts.resize(kept);
    if (std::count(one.counts.begin() + !one.counts.empty(), one.counts.end(), true) > 0)
      all.push_back(std::move(one));
    ++lines;
  });
  check_input(!all.empty(), Exit::data,
              "chat: none of the {} conversations of {} has an answer within {} tokens", lines,
              path, context);
  if (std::ssize(all) < lines)
    said += fmt::format(
        "{}: {} of {} conversations have no answer within {} tokens and are left "
        "out\n",
        path, lines - std::ssize(all), lines, context);
  return all;
}

}  // namespace triax::text
