#pragma once
#include <span>
#include <string>

#include "examples/minigpt/flags.h"

namespace triax::minigpt {

/// What follows `minigpt` on the command line.
struct Verb {
  std::string name;
  std::string what;  ///< one sentence for --help
  Flags flags;
};

/// Assign the words after the verb, and under them the file that --config names: a flag wins over
/// the file, the last of a repeated flag over the others. Returns false, with nothing assigned, if
/// --help was among them. Throws Error 64 for a bad flag; for the file as read_config does.
bool parse(const Verb& verb, std::span<const std::string> words);

/// What --help prints: flags by group, with their values as defaults.
std::string help(const Verb& verb);
/// The same in Markdown.
std::string markdown(const Verb& verb);

}  // namespace triax::minigpt
