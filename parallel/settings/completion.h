#pragma once
#include <span>
#include <string>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// Returns a shell's completions of the last of `words`, which is typed in part; the others stand
/// between it and the program's name. A line `WORD<tab>MEANING` for each that begins with the typed
/// part: verbs, flags, values of flags that have named ones. The line `<files>` asks for names of
/// files. Words that make no sense give no lines. The scripts in scripts/completion read this.
std::string completions(const CommandLine& line, std::span<const std::string> words);

}  // namespace triax::parallel
