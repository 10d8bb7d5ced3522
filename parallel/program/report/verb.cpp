#include "parallel/program/report/verb.h"

#include <filesystem>
#include <fstream>
#include <optional>

#include "core/check.h"
#include "core/files.h"
#include "parallel/program/output_file.h"
#include "parallel/program/report/page.h"
#include "parallel/settings/bytes.h"

namespace triax::parallel {
namespace {

constexpr std::string_view begins = "<!doctype html><!-- written by triax report -->\n";

bool is_our_page(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::string text(begins.size(), ' ');
  return in.read(text.data(), std::streamsize(text.size())) && text == begins;
}

}  // namespace

Verb report_verb(ReportOptions& o) {
  SettingGroup group("Report");
  group
      .add("out", "FILE",
           "page to write; a page of an earlier report is replaced, any other file is not", &o.out)
      .add("hardware", "NAME|FILE",
           fmt::format("also show MFU, the share of this peak that a rank reaches: {}, or a TOML "
                       "file as `calibrate` writes it",
                       join(hardware_names(), ", ")),
           &o.hardware, {.shown = "none"});
  return {.name = "report",
          .what =
              "Writes an HTML page about runs: curves on one axis, settings that differ, "
              "traces of --profile.",
          .settings = group,
          .examples = {},
          .operands = {{.name = "RUN..", .all = &o.runs}}};
}

Exit make_report(const ReportOptions& o) {
  std::error_code error;
  check_input(!std::filesystem::exists(o.out, error) || is_our_page(o.out), Exit::config,
              "report: {} exists and is no page of an earlier report\n  Choose another --out, or "
              "move it away.",
              o.out);
  check_output("out", o.out);
  std::optional<Hardware> hardware;
  if (!o.hardware.empty()) hardware = hardware_named(o.hardware);
  auto runs = report::read_runs(o.runs);
  std::string page = std::string(begins) + report::page_of(runs, {hardware ? &*hardware : nullptr});
  disk().replace(o.out, page);
  fmt::print("{}: {} run{}, {}\n", o.out, runs.size(), runs.size() == 1 ? "" : "s",
             show_bytes(double(page.size())));
  return Exit::ok;
}

}  // namespace triax::parallel
