#pragma once
#include <span>
#include <string>
#include <vector>

#include "parallel/settings/setting.h"

namespace triax::parallel {

/// A word that follows a verb, without a flag: `DIR`. It has to be given.
struct Operand {
  std::string name;
  std::string* value = nullptr;
  /// In place of `value`, of the last operand: this word and all further ones, `INPUT..`.
  std::vector<std::string>* all = nullptr;
};

/// What a program can do: the word after its name, or two words (`checkpoint verify`), then
/// operands and flags in any order.
struct Verb {
  std::string name;
  std::string what;  ///< one sentence for --help
  Settings settings;
  std::vector<std::string> examples = {};  ///< whole command lines
  std::vector<Operand> operands = {};
};

/// A program of several verbs.
struct CommandLine {
  std::string program;
  std::string version;
  std::vector<Verb> verbs;
};

/// What the words of a command line ask for: a verb, or else a text to print.
struct Request {
  const Verb* verb = nullptr;
  std::string text = {};
  Exit code = Exit::ok;                 ///< of a program that has printed the text
  std::vector<std::string> given = {};  ///< names of the verb's flags that the command line has
  std::vector<std::string> configured = {};  ///< those that the configuration file has
};

/// Assigns the words after the verb, and before them the file that the setting `config` names: a
/// flag wins over the file, the last of a repeated flag over the others. Nothing is assigned, and
/// the request has no verb, if --help was among them. Throws Error 64 for a bad flag; for the file
/// as read_config does, with `elsewhere`.
Request parse(const std::string& program, const Verb& verb, std::span<const std::string> words,
              const Settings& elsewhere = {});
/// The same for the words after the program's name: `VERB FLAGS`, `help [VERB]`, `--version`. No
/// words at all ask for the list of verbs, with code 64. `columns` are those of texts. A
/// configuration file of the first verb serves the others too.
Request parse(const CommandLine& line, std::span<const std::string> words, int columns);

/// Lines for the end of a message about paths: which flags, or lines of the configuration file,
/// gave those in it.
std::string paths_named(std::string_view message, const Request& request);

/// What --help prints: flags by group, with their values as defaults, in lines of at most `columns`
/// columns; fewer than 40 count as 40.
std::string help(const std::string& program, const Verb& verb, int columns);
/// The list of verbs.
std::string help(const CommandLine& line, int columns);
/// The flags of a verb in Markdown.
std::string markdown(const std::string& program, const Verb& verb);

}  // namespace triax::parallel
