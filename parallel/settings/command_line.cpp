#include "triax/parallel/settings/command_line.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

std::string title(const std::string& program, const Verb& verb) {
  return program + " " + verb.name;
}

// Returns `program checkpoint inspect DIR [-h]`.
std::string usage(const std::string& name, const Verb& verb) {
  std::string line = name;
  for (const Operand& o : verb.operands) line += " " + o.name;
  return line + (verb.settings.empty() ? " [-h]" : " [-h] [FLAGS]");
}

bool one_of(const std::string& word, std::initializer_list<const char*> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// True for -x and --x; -1 and - are values.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])));
}

const Setting& setting_of(const std::string& name, const Settings& settings,
                          const std::string& flag) {
  if (!flag.starts_with('-')) {
    bool run =
        std::ranges::count(settings, "checkpoint", &Setting::name) > 0 && disk().is_directory(flag);
    fail(Exit::usage, "{}: `{}` is no flag; flags are written --name VALUE{}", name,
         printable(flag), run ? ": --checkpoint " + shell_word(flag) : "");
  }
  for (const Setting& s : settings)
    if (flag == "--" + s.name) return s;
  auto names = names_of(settings);
  names.push_back({"help", ""});
  std::string meant = hint(flag, names, "--{}");
  if (meant.empty()) meant = fmt::format("; `{} --help` lists all flags", name);
  fail(Exit::usage, "{}: unknown flag {}{}", name, printable(flag), meant);
}

struct Given {
  std::map<const Setting*, std::string> values;
  std::vector<std::string> operands;
};

// Returns the last value given for each setting. Values stay texts, so that flags and configuration
// files are read, and refused, by the same code.
Given values_in(std::span<const std::string> words, const std::string& name, const Verb& verb) {
  Given all;
  auto& given = all.values;
  bool any = !verb.operands.empty() && verb.operands.back().all;  // takes all further words
  for (size_t i = 0; i < words.size(); ++i) {
    if (!words[i].starts_with('-') && (any || all.operands.size() < verb.operands.size())) {
      check_input(is_plain_text(words[i]), Exit::usage, "{}: `{}`; expected UTF-8 text", name,
                  printable(words[i]));
      all.operands.push_back(words[i]);
      continue;
    }
    size_t equals = words[i].find('=');
    bool more = i + 1 < words.size();
    const Setting& s = setting_of(name, verb.settings, words[i].substr(0, equals));
    if (equals != std::string::npos) given[&s] = words[i].substr(equals + 1);
    else if (is_switch(s) && !(more && one_of(words[i + 1], {"true", "false"}))) given[&s] = "true";
    else if (more && !is_flag(words[i + 1])) given[&s] = words[++i];
    else if (!s.alone.empty()) given[&s] = s.alone;
    else
      fail(Exit::usage,
           "{}: --{} has no value; flags are written --name VALUE, or --name=VALUE where the "
           "value begins with a dash",
           name, s.name);
  }
  if (size_t found = all.operands.size(); found < verb.operands.size())
    fail(Exit::usage, "{}: {} is not given; expected {}", name, verb.operands[found].name,
         usage(name, verb));
  return all;
}

// Returns the longest verb that the words begin with, and removes it from them.
const Verb& verb_of(const CommandLine& line, std::span<const std::string>& words) {
  const std::string& word = words.front();
  const std::string both = words.size() > 1 ? word + " " + words[1] : word;
  for (const std::string& name : {both, word})
    for (const Verb& verb : line.verbs)
      if (verb.name == name) {
        words = words.subspan(name == word ? 1 : 2);
        return verb;
      }
  std::vector<Elsewhere> names{{"help", ""}};
  std::vector<std::string> second;
  for (const Verb& verb : line.verbs) {
    if (verb.name.starts_with(word + " ")) second.push_back(verb.name.substr(word.size() + 1));
    names.push_back({verb.name, verb.elsewhere});
  }
  if (!second.empty())
    fail(Exit::usage, "{} {}: {}expected one of: {}", line.program, word,
         words.size() > 1
             ? fmt::format("unknown verb {}{}; ", printable(words[1]), hint(words[1], second, "{}"))
             : "",
         join(second, ", "));
  std::string meant = hint(word, names, "{}");
  if (meant.empty()) meant = fmt::format("; `{} --help` lists all verbs", line.program);
  fail(Exit::usage, "{}: unknown verb {}{}", line.program, printable(word), meant);
}

constexpr int narrowest = 40;

// A text of two columns: terms, the longest of `longest` characters, and their meanings.
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
  // Returns a command line in lines that a shell joins again.
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

// Escapes bars, which would end the cell.
std::string cell(const std::string& text) {
  std::string escaped;
  for (char c : text) {
    if (c == '|') escaped.push_back('\\');
    escaped.push_back(c);
  }
  return escaped;
}

}  // namespace

Request parse(const std::string& program, const Verb& verb, std::span<const std::string> words,
              const Settings& elsewhere) {
  for (const std::string& word : words)
    if (one_of(word, {"--help", "-h"})) return {};
  auto [given, operands] = values_in(words, title(program, verb), verb);
  for (const auto& [setting, value] : given)  // as from a shell variable that is not set
    check_input(!value.empty() || !is_path(*setting), Exit::usage, "--{} is empty; expected {}",
                setting->name, setting->value);
  Request request{.verb = &verb};
  for (const auto& [setting, value] : given)
    if (setting->name == "config") try {
        request.configured = read_config(verb.settings, value, elsewhere);
      } catch (const Error& e) {
        if (e.code() != Exit::not_found) throw;
        throw e.saying(fmt::format("{}\n  This is --config {}.", e.what(), printable(value)));
      }
  for (const Setting& s : verb.settings) {
    if (!given.contains(&s)) continue;
    assign(s, given.at(&s), {Exit::usage, "--" + s.name});
    request.given.push_back(s.name);
  }
  for (size_t i = 0; i < verb.operands.size(); ++i)
    if (auto& o = verb.operands[i]; o.all)
      o.all->assign(operands.begin() + long(i), operands.end());
    else *o.value = operands[i];
  return request;
}

Request parse(const CommandLine& line, std::span<const std::string> words, int columns) {
  if (words.empty()) return {.text = help(line, columns), .code = Exit::usage};
  const std::string& first = words.front();
  auto rest = words.subspan(1);
  if (one_of(first, {"--version", "-v", "-V"}))
    return {.text = fmt::format("{} {}\n", line.program, line.version)};
  if (one_of(first, {"help", "--help", "-h"})) {
    if (rest.empty()) return {.text = help(line, columns)};
    return {.text = help(line.program, verb_of(line, rest), columns)};
  }
  const Verb& verb = verb_of(line, words);
  Request request = parse(line.program, verb, words, line.verbs.front().settings);
  if (!request.verb) request.text = help(line.program, verb, columns);
  return request;
}

std::string help(const std::string& program, const Verb& verb, int columns) {
  columns = std::max(columns, narrowest);
  size_t longest = std::string_view("-h, --help").size();
  for (const Setting& s : verb.settings) longest = std::max(longest, flag_of(s).size());
  Table table(columns, longest);
  std::string page =
      fmt::format("Usage: {}\n\n{}\n", wrapped(usage(title(program, verb), verb), columns, 7),
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
  if (!verb.operands.empty()) page += fmt::format("\n`{}`\n", usage(title(program, verb), verb));
  for (const Setting& s : verb.settings) {
    if (s.group != group)
      page += fmt::format("\n### {}\n\n| flag | meaning | default |\n|---|---|---|\n", s.group);
    group = s.group;
    page +=
        fmt::format("| `{}` | {} | {} |\n", cell(flag_of(s)), cell(s.help), cell(default_of(s)));
  }
  return page;
}

std::string paths_named(std::string_view message, const Request& request) {
  message.remove_prefix(std::min(message.size(), message.find(' ')));  // the operation
  auto has = [&](const std::string& path) {  // or a file below it, not behind `flag=`
    constexpr std::string_view before = " `", after = " :`;,\n/";
    for (size_t at = 0; (at = message.find(path, at)) != message.npos; ++at) {
      size_t end = at + path.size();
      if (at > 0 && before.find(message[at - 1]) != before.npos &&
          (end == message.size() || after.find(message[end]) != after.npos))
        return true;
    }
    return false;
  };
  std::string lines, file;
  for (const Setting& s : request.verb->settings)
    if (s.name == "config") file = printable(value_text(s));
  for (const Setting& s : request.verb->settings) {
    std::string path = is_path(s) ? printable(value_text(s)) : "";
    if (path.empty() || !has(path)) continue;
    if (std::ranges::count(request.given, s.name) > 0)
      lines += fmt::format("\n  This is --{} {}.", s.name, path);
    else if (std::ranges::count(request.configured, s.name) > 0)
      lines += fmt::format("\n  This is {} = \"{}\" in {}.", s.name, path, file);
  }
  return lines;
}

}  // namespace triax::parallel
