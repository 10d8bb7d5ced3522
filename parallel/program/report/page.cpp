#include "parallel/program/report/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "core/files.h"
#include "parallel/program/report/curves.h"
#include "parallel/program/report/fact_table.h"
#include "parallel/program/report/overview.h"
#include "parallel/program/report/profile_section.h"
#include "parallel/program/report/style.h"

namespace triax::parallel::report {
namespace {

using Runs = std::vector<RunFacts>;

std::string sample(size_t run) {
  return fmt::format(R"(<svg viewBox="0 0 26 12"><path class="r{}" d="M2 6h22"/></svg>)", run);
}

std::string run_colors() {
  std::string css;
  for (int run = 0; run < 16; ++run)
    css += fmt::format(
        "path.r{0},circle.r{0}{{stroke:var(--r{1});{2}}}path.skipped.r{0}{{fill:var(--r{1})}}", run,
        run % 8, run < 8 ? "" : "stroke-dasharray:7 4");
  return css;
}

std::string legend(const Runs& runs) {
  std::string text;
  for (size_t i = 0; i < runs.size(); ++i)
    text += fmt::format("<span>{}{}</span>", sample(i), escaped(runs[i].name));
  return fmt::format("<div class=\"legend\">{}</div>\n", text);
}

/// 0.00030000000000000003, which a tenth of 0.003 is, as 0.0003.
std::string rounded(const std::string& value) {
  double number = 0;
  auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  bool real = error == std::errc() && end == value.data() + value.size() &&
              value.find_first_of(".e") != value.npos;
  return real ? fmt::format("{:.15g}", number) : value;
}

std::string settings(const Runs& runs) {
  std::set<std::string> keys;
  for (auto& run : runs)
    for (auto& [key, value] : run.settings) keys.insert(key);
  keys.erase(foreseen_memory);  // which the overview has
  if (keys.empty()) return "<p>No run directory has a configuration.</p>\n";
  FactTable differ(runs), equal({runs.data(), 1});
  for (auto& key : keys) {
    auto value = [&](const RunFacts& run) {
      auto found = run.settings.find(key);
      return found == run.settings.end() ? std::string("not there") : printable(found->second);
    };
    if (std::ranges::all_of(runs, [&](auto& run) { return value(run).empty(); })) continue;
    bool same = std::ranges::all_of(runs, [&](auto& run) { return value(run) == value(runs[0]); });
    (same ? equal : differ).row(key, [&](const RunFacts& run) { return rounded(value(run)); });
  }
  std::string some = differ.text();
  std::string first = runs.size() == 1 ? "" : some.empty() ? "<p>All are equal.</p>\n" : some;
  return fmt::format(
      "{}<details{}><summary>{}</summary><div class=\"settings\">{}</div></details>\n", first,
      runs.size() == 1 ? " open" : "",
      runs.size() == 1 ? "All settings" : "Settings that are equal", equal.text());
}

std::string notes(const Runs& runs) {
  std::string items;
  auto add = [&](const std::string& text) { items += fmt::format("<li>{}</li>\n", escaped(text)); };
  for (auto& run : runs) {
    add(fmt::format("{}: metrics of {}", run.name, run.metrics));
    for (auto& note : run.notes) add(run.name + ": " + note);
    for (auto& text : run.overflows) add(fmt::format("{}: skipped {}", run.name, text));
  }
  return "<ul>" + items + "</ul>\n";
}

}  // namespace

std::string page_of(const std::vector<RunFacts>& runs, const PageOptions& o) {
  std::string title = runs[0].name;
  for (size_t i = 1; i < runs.size(); ++i) title += ", " + runs[i].name;
  std::string page = fmt::format(
      "<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{}</title>\n<style>{}{}</style></head>\n<body>\n<h1>{}</h1>\n",
      escaped(title), style, run_colors(),
      runs.size() == 1 ? escaped(title) : fmt::format("{} runs", runs.size()));
  if (runs.size() > 1) page += legend(runs);
  page += "<h2>Overview</h2>\n" + overview(runs, o.hardware);
  page += "<h2>Curves</h2>\n" + curves(runs);
  for (auto& run : runs)
    if (run.trace) page += profile_section(run);
  page += "<h2>Configuration</h2>\n" + settings(runs);
  page += "<h2>Notes</h2>\n" + notes(runs);
  return page + fmt::format("<script>{}</script>\n</body></html>\n", script);
}

}  // namespace triax::parallel::report
