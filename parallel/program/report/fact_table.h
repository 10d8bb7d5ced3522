#pragma once
#include <fmt/core.h>

#include <functional>
#include <string>
#include <vector>

#include "parallel/program/report/chart.h"
#include "parallel/program/report/runs.h"

namespace triax::parallel::report {

/// A table in HTML: a row for each fact, a column for each run. `runs` outlive it.
class FactTable {
 public:
  explicit FactTable(const std::vector<RunFacts>& runs) : runs_(runs) {}
  void row(const std::string& name, const std::function<std::string(const RunFacts&)>& value) {
    body_ += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(name));
    for (auto& run : runs_) body_ += fmt::format("<td>{}</td>", escaped(value(run)));
    body_ += "</tr>\n";
  }
  /// Empty without rows.
  std::string text() const {
    if (body_.empty()) return "";
    std::string head;
    for (auto& run : runs_) head += fmt::format("<th scope=\"col\">{}</th>", escaped(run.name));
    return fmt::format(
        "<div class=\"scroll\"><table><thead><tr><td></td>{}</tr></thead>\n"
        "<tbody>{}</tbody></table></div>\n",
        head, body_);
  }

 private:
  const std::vector<RunFacts>& runs_;
  std::string body_;
};

}  // namespace triax::parallel::report
