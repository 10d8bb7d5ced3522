#pragma once
#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/temporary_directory.h"
#include "tests/support/timed_pipeline.h"

namespace triax::test {

/// Seconds of a pipeline's step: by the clock of the process, and as scripts/overlay.py reads them
/// from the step's trace.
struct OverlaidStep {
  double clock = 0, whole = 0, measured = 0, simulated = 0;
};

/// Traces a step as trace_step() makes it. Zeros if the script fails, which has said why.
inline OverlaidStep overlay_of_step(const std::string& schedule, int stages, double unit) {
  TemporaryDirectory directory;
  std::string trace = directory / "trace.json", text;
  double clock = trace_step(trace, schedule, stages, unit);
  std::FILE* output = ::popen(("python3 " TRIAX_OVERLAY " --json " + trace).c_str(), "r");
  for (int c; output && (c = std::fgetc(output)) != EOF;) text += char(c);
  if (!output || ::pclose(output) != 0) return {};
  auto o = nlohmann::json::parse(text);
  return {clock, o["seconds"], o["measured"]["time"], o["simulated"]["time"]};
}

}  // namespace triax::test
