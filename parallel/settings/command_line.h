#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

/// A required word that follows a verb, without a flag: `DIR`.
struct Operand {
  std::string name;
  std::string* value = nullptr;
  /// Replaces `value` for the last operand: takes this word and all further ones, `INPUT..`.
  std::vector<std::string>* all = nullptr;
};

struct Invocation;

/// A command of a program: the word after its name, or two words (`checkpoint verify`), then
/// operands and flags in any order.
struct Verb {
  std::string name;
  std::string what;  ///< one sentence for --help
  Settings settings = {};
  std::vector<std::string> examples = {};  ///< whole command lines
  std::vector<Operand> operands = {};
  /// Does it, once its words are assigned. Returns the program's exit code.
  std::function<int(const Invocation&)> run = {};
  std::string elsewhere = {};  ///< its names in other programs, for hints: `pretrain|fit`
};

/// A program of several verbs.
struct CommandLine {
  std::string program;
  std::string version;
  std::vector<Verb> verbs;
};

/// The request of a command line: a verb, or else a text to print.
struct Request {
  const Verb* verb = nullptr;
  std::string text = {};
  Exit code = Exit::ok;                      ///< for a program that has printed the text
  std::vector<std::string> given = {};       ///< names of the verb's flags on the command line
  std::vector<std::string> configured = {};  ///< names of those in the configuration file
};

/// A verb that is asked for: the words of the whole program, and what was read of them.
struct Invocation {
  const Request& request;
  const CommandLine& line;
  int& argc;
  char**& argv;
};

/// Assigns the words after the verb, and before them the file that the setting `config` names: a
/// flag overrides the file, the last of a repeated flag overrides the others. Nothing is assigned,
/// and the request has no verb, if --help was among them. Throws Error 64 for a bad flag; for the
/// file as read_config does, with `elsewhere`.
Request parse(const std::string& program, const Verb& verb, std::span<const std::string> words,
              const Settings& elsewhere = {});
/// Parses the words after the program's name: `VERB FLAGS`, `help [VERB]`, `--version`. No words at
/// all request the list of verbs, with code 64. `columns` is the width of texts. A configuration
/// file of the first verb serves the others too.
Request parse(const CommandLine& line, std::span<const std::string> words, int columns);

/// Returns lines for the end of a message about paths: the flags, or lines of the configuration
/// file, that gave those in it.
std::string paths_named(std::string_view message, const Request& request);

/// Returns the text of --help: flags by group, with their values as defaults, in lines of at most
/// `columns` columns; fewer than 40 count as 40.
std::string help(const std::string& program, const Verb& verb, int columns);
/// Returns the list of verbs.
std::string help(const CommandLine& line, int columns);
/// Returns the flags of a verb in Markdown.
std::string markdown(const std::string& program, const Verb& verb);

/// Returns a shell's completions of the last of `words`, which is typed in part; the others stand
/// between it and the program's name. A line `WORD<tab>MEANING` for each that begins with the typed
/// part: verbs, flags, values of flags that have named ones. The line `<files>` asks for names of
/// files. Words that make no sense give no lines. The scripts in scripts/completion read this.
std::string completions(const CommandLine& line, std::span<const std::string> words);

/// Returns the man page of a program in section 1, in the macros of man(7): its name and its verbs.
/// The first verb describes the program.
std::string man_page(const CommandLine& line);
/// Returns a section about a verb, to be appended: flags by group with defaults, and examples.
std::string man_page(const std::string& program, const Verb& verb);

}  // namespace triax::parallel
