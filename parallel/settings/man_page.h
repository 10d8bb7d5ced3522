#pragma once
#include <string>

#include "parallel/settings/command_line.h"

namespace triax::parallel {

/// The man page of a program in section 1, in the macros of man(7): its name and its verbs. What
/// the verb that comes first does is what the program is for.
std::string man_page(const CommandLine& line);
/// A section about a verb, to be added: flags by group with their values as defaults, and examples.
std::string man_page(const std::string& program, const Verb& verb);

}  // namespace triax::parallel
