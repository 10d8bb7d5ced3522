#include <chrono>

#include "examples/text/make_shards.h"
#include "examples/text/tokenizer/utf8.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/report.h"

namespace triax::text {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void say(const std::string& text) {
  fmt::print("{}", parallel::folded(text + "\n"));
  std::fflush(stdout);
}

/// Prints a line every two seconds, and one where something else begins.
class DataProgress {
 public:
  void tell(const ShardProgress& p) {
    if (doing_ != p.doing) {
      doing_ = p.doing;
      begun_ = last_ = Clock::now();
      first_ = p.done;
      say(fmt::format("{}: {:.1f} MB", p.doing, double(p.all) / 1e6));
    }
    double took = seconds_since(begun_);
    if (seconds_since(last_) < 2 || p.all == 0) return;
    last_ = Clock::now();
    double pace = double(p.done - first_) / took;
    say(fmt::format("{}: {:3} %  {:.1f} MB/s  {} left  {} tokens", p.doing, 100 * p.done / p.all,
                    pace / 1e6, parallel::duration(double(p.all - p.done) / pace), p.tokens));
  }

 private:
  std::string doing_;
  Clock::time_point begun_, last_;
  uint64_t first_ = 0;
};

int make(const ShardJob& job) {
  check_input(!job.out.empty(), Exit::config, "out is not given\n  Add --out DIR, for the shards.");
  auto start = Clock::now();
  for (auto& path : job.inputs) {
    File file = disk().open(path);
    std::string beginning(std::min<uint64_t>(file.size(), 1 << 16), '\0');
    file.read_at(0, beginning.data(), beginning.size());
    fmt::print("{}", parallel::folded(json_lines_notice(path, beginning)));
  }
  DataProgress progress;
  bool told = false;
  auto m = make_shards(job, [&](const ShardProgress& p) { told = true, progress.tell(p); });
  uint64_t bytes = 0;
  for (auto& input : m.inputs) bytes += input.bytes;
  say(fmt::format("{}{}: {} tokens of {} in {} of {}, {:.2f} bytes of text a token, {}", job.out,
                  told ? "" : " was complete", m.tokens(), m.vocabulary,
                  counted(m.shards.size(), "shard"), m.width == 2 ? "u16" : "u32",
                  double(bytes) / double(m.tokens()), parallel::duration(seconds_since(start))));
  return 0;
}

/// Returns the beginning of a text, fit for a terminal.
std::string beginning(const Tokens& tokens, const Tokenizer& tokenizer) {
  std::vector<int32_t> first(size_t(std::min<int64_t>(tokens.size(), 24)));
  tokens.read(0, first);
  std::string text = tokenizer.decode(first), shown;
  for (char c : text.substr(0, last_character_end(text)))
    shown += c == '\n' ? "\\n" : c == '\r' ? "\\r" : c == '\t' ? "\\t" : std::string(1, c);
  return printable(shown);
}

int inspect(const std::string& path) {
  if (!holds_tokens(path)) (void)disk().open(path);  // throws if it is not there
  check_input(holds_tokens(path), Exit::data,
              "data: {} is no directory and no .bin file; expected tokens", path);
  TokenSet set = find_tokens(path);
  TokensPtr first;
  int64_t largest = 0, all = 0;
  auto show = [&](const std::vector<TokenFile>& files, const char* part) {
    for (const TokenFile& f : files) {
      auto tokens = map_tokens({f}, set.vocabulary, largest);
      if (!first) first = tokens;
      all += f.tokens;
      say(fmt::format("{}  {:>12} tokens  u{}  {}{}", f.path, f.tokens, 8 * f.width, part,
                      f.crc32c ? fmt::format("  crc32c {:08x} ok", *f.crc32c) : ""));
    }
  };
  show(set.training, "training"), show(set.held_out, "held out");
  for (auto& left_out : set.left_out) say(left_out + "  left out");
  say(fmt::format("{} tokens, the largest {}", all, largest));
  if (!set.tokenizer) return say("no tokenizer is beside them"), 0;
  say(fmt::format("tokenizer: {} {}, hash {}", set.tokenizer->size(), set.tokenizer->unit(),
                  set.tokenizer->hash()));
  if (first) say("begins: " + beginning(*first, *set.tokenizer));
  return 0;
}

}  // namespace

std::vector<parallel::Verb> data_verbs(const std::string& program, DataOptions& o) {
  parallel::SettingGroup group("Data");
  group
      .add("tokenizer|tokenize", "char|gpt2:DIR|bpe:N",
           "characters, BPE from the files in DIR, or N byte-level tokens learned from the "
           "first 32 MiB",
           &o.job.tokenizer)
      .add("out", "DIR", "where the shards go; what is there of the same is not made again",
           &o.job.out, {.shown = "none, must be given", .saved = false})
      .add("shard-size", "N", "tokens in a shard", &o.job.shard_size, {.range = {1, 1e12}})
      .add("config", "FILE", "TOML file whose keys are these flags; flags win over it", &o.config,
           {.shown = "none", .key = false});
  return {{.name = "data",
           .what = "Turns texts into tokens to train on.",
           .settings = group,
           .examples = {program + " data a.txt b.txt --tokenizer bpe:4096 --out shards",
                        program + " train --data shards"},
           .operands = {{.name = "INPUT..", .all = &o.job.inputs}},
           .run = [&o](auto&) { return make(o.job); },
           .elsewhere = "prepare|tokenize|preprocess"},
          {.name = "data inspect",
           .what = "Checks and describes files of tokens.",
           .examples = {program + " data inspect shards"},
           .operands = {{"DIR", &o.inspected}},
           .run = [&o](auto&) { return inspect(o.inspected); }}};
}

}  // namespace triax::text
