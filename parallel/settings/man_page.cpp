#include "triax/core/check.h"
#include "triax/parallel/settings/command_line.h"

namespace triax::parallel {
namespace {

// Returns text for roff: dashes that can be copied, no escapes, no request at the start of a line.
std::string plain(std::string_view text) {
  std::string made = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (char c : text)
    if (c == '-') made += "\\-";
    else if (c == '\\') made += "\\e";
    else if (c == '"') made += "\\(dq";
    else made.push_back(c == '\n' || c == '\t' ? ' ' : c);
  return made;
}

std::string bold(std::string_view text) { return "\\fB" + plain(text) + "\\fR"; }

std::string entry(const std::string& term, std::string_view meaning) {
  return fmt::format(".TP\n{}\n{}\n", term, plain(meaning));
}

}  // namespace

std::string man_page(const CommandLine& line) {
  std::string title;
  for (char c : line.program) title.push_back(char(std::toupper(static_cast<unsigned char>(c))));
  std::string page = fmt::format(
      ".TH \"{}\" 1 \"\" \"{}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{} \\fIVERB\\fR "
      "[\\fIFLAGS\\fR]\n"
      ".SH DESCRIPTION\n",
      plain(title), plain(line.version.substr(0, line.version.find(','))), plain(line.program),
      plain(line.verbs.front().what), bold(line.program));
  for (const Verb& verb : line.verbs) page += entry(bold(verb.name), verb.what);
  page += entry(bold("help") + " \\fIVERB\\fR", "Prints the flags of a verb.");
  return page + ".PP\nEvery flag of a verb is also a key of the file that " + bold("--config") +
         " names.\n";
}

std::string man_page(const std::string& program, const Verb& verb) {
  std::string title = program + " " + verb.name, words = title, group;
  for (const Operand& o : verb.operands) words += " " + o.name;
  std::string page = fmt::format(".SH \"{}\"\n{}\n.PP\n{}{}\n", plain(title), plain(verb.what),
                                 bold(words), verb.settings.empty() ? "" : " [\\fIFLAGS\\fR]");
  for (const Setting& s : verb.settings) {
    if (s.group != group) page += fmt::format(".SS \"{}\"\n", plain(s.group));
    group = s.group;
    std::string value = s.value.empty() ? "" : " \\fI" + plain(s.value) + "\\fR";
    page +=
        entry(bold("--" + s.name) + value, fmt::format("{} (default: {})", s.help, default_of(s)));
  }
  if (verb.examples.empty()) return page;
  page += ".SS Examples\n.nf\n";
  for (const std::string& example : verb.examples) page += plain(example) + "\n";
  return page + ".fi\n";
}

}  // namespace triax::parallel
