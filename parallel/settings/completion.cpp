#include <algorithm>
#include <cctype>

#include "triax/core/check.h"
#include "triax/parallel/settings/command_line.h"

namespace triax::parallel {
namespace {

constexpr const char* files = "<files>\n";

// The lines offered for words that begin with the one that is typed.
class Offers {
 public:
  explicit Offers(std::string typed) : typed_(std::move(typed)) {}

  void add(const std::string& word, const std::string& meaning = {}) {
    std::string offer = word + "\t" + meaning + "\n";
    if (word.starts_with(typed_) && !text_.ends_with(offer)) text_ += offer;
  }
  void add_files() { text_ += files; }
  const std::string& typed() const { return typed_; }
  const std::string& text() const { return text_; }

 private:
  std::string typed_, text_;
};

// Offers values of a setting. In --help, `auto|last-good|PATH` stands for the value: words, and
// names in capitals for anything else. `before` precedes the value in the same word: `--zero=`.
void add_values(Offers& offers, const Setting& s, const std::string& before = {}) {
  auto* named = std::get_if<Choice>(&s.field);
  std::vector<std::string> names = named ? named->names : s.choices;
  if (is_switch(s)) names = {"true", "false"};
  if (!names.empty()) {
    for (const std::string& name : names) offers.add(before + name);
    if (!s.or_file.empty()) offers.add_files();
    return;
  }
  std::string_view left = s.value;
  while (!left.empty()) {
    std::string_view part = left.substr(0, left.find('|'));
    left.remove_prefix(std::min(left.size(), part.size() + 1));
    if (std::ranges::none_of(part, [](unsigned char c) { return std::isupper(c); }))
      offers.add(before + std::string(part));
  }
  if (is_path(s)) offers.add_files();
}

const Setting* setting_of(const Verb& verb, const std::string& flag) {
  for (const Setting& s : verb.settings)
    if (flag == "--" + s.name) return &s;
  return nullptr;
}

// `before`: the word before the one that is typed, empty if that is the verb.
void add_arguments(Offers& offers, const Verb& verb, const std::string& before) {
  const std::string& typed = offers.typed();
  if (size_t equals = typed.find('='); typed.starts_with("--") && equals != typed.npos) {
    if (const Setting* s = setting_of(verb, typed.substr(0, equals)))
      add_values(offers, *s, typed.substr(0, equals + 1));
    return;
  }
  const Setting* asks = setting_of(verb, before);
  if (asks && !is_switch(*asks) && !typed.starts_with('-')) return add_values(offers, *asks);
  if (!verb.operands.empty() && !typed.starts_with('-')) return offers.add_files();
  for (const Setting& s : verb.settings) offers.add("--" + s.name, s.help);
  offers.add("--help", "print the flags");
}

// Offers first words of verbs, or the second ones of those that begin with `first`.
void add_verbs(Offers& offers, const CommandLine& line, const std::string& first) {
  for (const Verb& verb : line.verbs) {
    size_t space = verb.name.find(' ');
    bool two = space != std::string::npos;
    if (first.empty()) offers.add(verb.name.substr(0, space), two ? "" : verb.what);
    else if (two && verb.name.substr(0, space) == first)
      offers.add(verb.name.substr(space + 1), verb.what);
  }
}

}  // namespace

std::string completions(const CommandLine& line, std::span<const std::string> words) {
  std::vector<std::string> before(words.begin(), words.end());
  bool open = before.empty() || before.back() == "=";
  std::erase(before, "=");  // bash makes three words of --zero=2
  Offers offers(open ? "" : before.back());
  if (!open) before.pop_back();
  bool help = !before.empty() && before.front() == "help";
  if (help) before.erase(before.begin());
  for (const Verb& verb : line.verbs)
    for (size_t length = 1; length <= std::min<size_t>(2, before.size()); ++length) {
      if (verb.name != join(std::span(before).first(length), " ")) continue;
      if (!help) add_arguments(offers, verb, before.size() > length ? before.back() : "");
      return offers.text();
    }
  if (before.size() > 1) return {};
  add_verbs(offers, line, before.empty() ? "" : before.front());
  if (before.empty() && !help) {
    offers.add("help", "print the flags of a verb");
    if (offers.typed().starts_with('-'))
      for (const char* flag : {"--help", "--version"}) offers.add(flag);
  }
  return offers.text();
}

}  // namespace triax::parallel
