#include "examples/minigpt/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "core/check.h"
#include "core/files.h"

namespace triax::minigpt {

namespace {

// Lines of at most 64 columns; words are never cut.
std::string wrapped(const std::string& text) {
  std::string lines;
  size_t column = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(' ', at), text.size());
    bool breaks = column > 0 && column + 1 + end - at > 64;
    if (column > 0) lines.push_back(breaks ? '\n' : ' ');
    column = (breaks || column == 0 ? 0 : column + 1) + end - at;
    lines.append(text, at, end - at);
    at = end + 1;
  }
  return lines;
}

// `--name=` in two words: CLI11 takes it for a flag without value, not for one with an empty value.
std::vector<std::string> split_empty(std::span<const std::string> words) {
  std::vector<std::string> split;
  for (const std::string& word : words) {
    bool empty = word.starts_with("--") && word.find('=') == word.size() - 1;
    split.push_back(empty ? word.substr(0, word.size() - 1) : word);
    if (empty) split.emplace_back();
  }
  return split;
}

// CLI11 splits the words and prints --help; values stay texts, so that flags and configuration
// files are read, and refused, by the same code.
struct Parser {
  explicit Parser(const Verb& verb) : app(verb.what, "minigpt " + verb.name) {
    app.set_help_flag();
    app.allow_extras();
    app.get_formatter()->column_width(34);
    for (const Flag& flag : verb.flags) {
      std::string text = fmt::format("{} (default: {})", flag.help, default_of(flag));
      auto* option = is_switch(flag) ? app.add_flag("--" + flag.name)
                                     : app.add_option("--" + flag.name)->type_name(flag.value);
      option->description(wrapped(text))
          ->group(flag.group)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    }
    app.set_help_flag("-h,--help", "print this")->group("Run");
  }
  CLI::App app;
};

[[noreturn]] void refuse_unknown(const Verb& verb, const std::string& word) {
  if (!word.starts_with('-')) {
    fail(Exit::usage, "minigpt {}: `{}` is no flag; flags are written --name VALUE", verb.name,
         printable(word));
  }
  std::vector<std::string> names{"--help"};
  for (const Flag& flag : verb.flags) names.push_back("--" + flag.name);
  std::string name = word.substr(0, word.find('='));
  fail(Exit::usage, "minigpt {}: unknown flag {}; the nearest is {}", verb.name, printable(name),
       nearest(name, names));
}

}  // namespace

bool parse(const Verb& verb, std::span<const std::string> words) {
  Parser parser(verb);
  try {
    auto split = split_empty(words);
    parser.app.parse(std::vector<std::string>(split.rbegin(), split.rend()));
  } catch (const CLI::CallForHelp&) {
    return false;
  } catch (const CLI::ArgumentMismatch& e) {
    std::string text = e.what(), flag = text.substr(0, text.find(':'));
    fail(Exit::usage,
         "minigpt {}: {} has no value; flags are written --name VALUE, or --name=VALUE "
         "where the value begins with a dash",
         verb.name, flag);
  } catch (const CLI::ParseError& e) {
    fail(Exit::usage, "minigpt {}: {}", verb.name, printable(e.what()));
  }
  auto unknown = parser.app.remaining();
  if (!unknown.empty()) refuse_unknown(verb, unknown.front());

  auto given = [&](const Flag& flag) { return parser.app.get_option("--" + flag.name); };
  for (const Flag& flag : verb.flags) {
    if (flag.name == "config" && *given(flag))
      read_config(verb.flags, given(flag)->results().back());
  }
  for (const Flag& flag : verb.flags) {
    if (*given(flag)) assign(flag, given(flag)->results().back(), {Exit::usage, "--" + flag.name});
  }
  return true;
}

std::string help(const Verb& verb) { return Parser(verb).app.help(); }

std::string markdown(const Verb& verb) {
  auto cell = [](const std::string& text) {  // a bar would end the cell
    std::string escaped;
    for (char c : text) {
      if (c == '|') escaped.push_back('\\');
      escaped.push_back(c);
    }
    return escaped;
  };
  std::string page = fmt::format("## minigpt {}\n\n{}\n", verb.name, verb.what), group;
  for (const Flag& flag : verb.flags) {
    if (flag.group != group) {
      group = flag.group;
      page += fmt::format("\n### {}\n\n| flag | meaning | default |\n|---|---|---|\n", group);
    }
    std::string value = flag.value.empty() ? "" : " " + cell(flag.value);
    page += fmt::format("| `--{}{}` | {} | {} |\n", flag.name, value, cell(flag.help),
                        cell(default_of(flag)));
  }
  return page;
}

}  // namespace triax::minigpt
