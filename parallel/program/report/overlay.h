#pragma once
#include <string>

#include "parallel/pipeline/timeline.h"
#include "parallel/program/report/trace.h"

namespace triax::parallel::report {

/// How long a measured pipeline's actions and links took. Latency of a link: the shortest time that
/// any of its handovers took, from when both ends were ready until the receiving action began; 0
/// within a stage.
ActionTimes times_of(const MeasuredPipeline& measured);

/// The lists that the stages of a measured pipeline ran, simulated with times_of(). `name`: of
/// their schedule. Throws Error 65 unless they are a whole schedule.
Timeline simulated(const MeasuredPipeline& measured, const std::string& name);

/// A measured pipeline beside its simulation.
struct Overlay {
  std::string source;  ///< where the trace is from
  MeasuredPipeline measured;
  Timeline simulated;
};
/// Of `source`: a run directory with a trace, or a trace of `--profile`. Throws Error 66 if there
/// is none, 65 if it is damaged or shows no pipeline.
Overlay read_overlay(const std::string& source);

/// How much longer the measured pipeline took than the simulated one, as a share of the latter.
double longer(const Overlay& overlay);

/// For a terminal: the time of both, and how long each stage worked and waited.
std::string overlay_text(const Overlay& overlay);

/// One JSON object: `step`, `seconds` (of the whole step), `measured` and `simulated`, which are as
/// timeline_json() writes them, in seconds.
std::string overlay_json(const Overlay& overlay);

}  // namespace triax::parallel::report
