#pragma once
#include <string>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// Returns the man page of a program in section 1, in the macros of man(7): its name and its verbs.
/// The first verb describes the program.
std::string man_page(const CommandLine& line);
/// Returns a section about a verb, to be appended: flags by group with defaults, and examples.
std::string man_page(const std::string& program, const Verb& verb);

}  // namespace triax::parallel
