#pragma once
#include <fmt/core.h>

#include <functional>
#include <span>
#include <string>

#include "parallel/program/report/chart.h"
#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

/// A table in HTML: a row for each fact, a column for each run, with its name if there are
/// several. `runs` outlive it.
class FactTable {
 public:
  explicit FactTable(std::span<const RunFacts> runs) : runs_(runs) {}
  void row(const std::string& name, const std::function<std::string(const RunFacts&)>& value) {
    body_ += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(name));
    for (auto& run : runs_) body_ += fmt::format("<td>{}</td>", escaped(value(run)));
    body_ += "</tr>\n";
  }
  /// Empty without rows.
  std::string text() const {
    if (body_.empty()) return "";
    std::string names;
    for (auto& run : runs_) names += fmt::format("<th scope=\"col\">{}</th>", escaped(run.name));
    if (runs_.size() > 1) names = "<thead><tr><td></td>" + names + "</tr></thead>\n";
    else names.clear();
    return fmt::format("<div class=\"scroll\"><table>{}<tbody>{}</tbody></table></div>\n", names,
                       body_);
  }

 private:
  std::span<const RunFacts> runs_;
  std::string body_;
};

}  // namespace triax::parallel::report
