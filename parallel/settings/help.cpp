#include <algorithm>

#include "core/check.h"
#include "parallel/settings/command_line.h"
#include "parallel/settings/terminal.h"

namespace triax::parallel {

namespace {

constexpr int narrowest = 40;

// Two columns: terms, of which the longest has `longest` characters, and what they mean.
class Table {
 public:
  Table(int columns, size_t longest)
      : columns_(columns), at_(std::min({int(longest) + 4, 34, columns * 2 / 5})) {}

  std::string row(const std::string& term, const std::string& meaning) const {
    std::string line = "  " + wrapped(term, columns_, 2);
    int written = int(line.size() - (line.rfind('\n') + 1));
    bool fits = written + 2 <= at_;
    line += fits ? "" : "\n";
    line.append(size_t(fits ? at_ - written : at_), ' ');
    return line + wrapped(meaning, columns_, at_) + "\n";
  }
  // A command line; a shell takes it back from several lines.
  std::string command(const std::string& words) const {
    std::string lines = wrapped(words, columns_ - 2, 6);
    for (size_t at = 0; (at = lines.find('\n', at)) != lines.npos; at += 3) lines.insert(at, " \\");
    return "    " + lines + "\n";
  }

 private:
  int columns_, at_;
};

std::string flag_of(const Setting& s) {
  return fmt::format("--{}{}{}", s.name, s.value.empty() ? "" : " ", s.value);
}

// A bar would end the cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped.push_back('\\');
    escaped.push_back(c);
  }
  return escaped;
}

}  // namespace

std::string help(const std::string& program, const Verb& verb, int columns) {
  columns = std::max(columns, narrowest);
  size_t longest = std::string_view("-h, --help").size();
  for (const Setting& s : verb.settings) longest = std::max(longest, flag_of(s).size());
  Table table(columns, longest);
  std::string page =
      fmt::format("Usage: {}\n\n{}\n", wrapped(title(program, verb) + " [-h] [FLAGS]", columns, 7),
                  wrapped(verb.what, columns));
  if (!verb.examples.empty()) page += "\nExamples:\n";
  for (const std::string& example : verb.examples) page += table.command(example);
  std::string group;
  for (const Setting& s : verb.settings) {
    if (s.group != group) page += fmt::format("\n{}:\n", s.group);
    group = s.group;
    page += table.row(flag_of(s), fmt::format("{} (default:\t{})", s.help, default_of(s)));
  }
  return page + "\n" + table.row("-h, --help", "print this help");
}

std::string help(const CommandLine& line, int columns) {
  columns = std::max(columns, narrowest);
  std::string page =
      fmt::format("Usage: {}\n\n", wrapped(line.program + " VERB [FLAGS]", columns, 7));
  const std::string ask = "VERB --help";
  size_t longest = ask.size();
  for (const Verb& verb : line.verbs) longest = std::max(longest, verb.name.size());
  Table table(columns, longest);
  for (const Verb& verb : line.verbs) page += table.row(verb.name, verb.what);
  return page + "\n" + table.row(ask, "print the flags of a verb, as `help VERB` does") +
         table.row("--version", "print the version");
}

std::string markdown(const std::string& program, const Verb& verb) {
  std::string page = fmt::format("## {}\n\n{}\n", title(program, verb), verb.what), group;
  for (const Setting& s : verb.settings) {
    if (s.group != group)
      page += fmt::format("\n### {}\n\n| flag | meaning | default |\n|---|---|---|\n", s.group);
    group = s.group;
    page +=
        fmt::format("| `{}` | {} | {} |\n", cell(flag_of(s)), cell(s.help), cell(default_of(s)));
  }
  return page;
}

}  // namespace triax::parallel
