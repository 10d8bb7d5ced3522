#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "triax/core/profile.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/pipeline/schedule.h"

namespace triax::parallel {

/// The rank of a profile, and what its clock shows when the trace begins, in nanoseconds: not after
/// the first slice, since Perfetto drops events with negative times.
struct TracedRank {
  int rank = 0;
  std::string name;  ///< the name of its track
  int64_t zero = 0;
};

/// Returns a profile as events of a Chrome trace, comma-separated JSON objects: the slices (`X`) of
/// process and thread `rank` + 1, and its operations (`b`, `e`) of category `operation`. Format:
/// "Trace Event Format", Google, 2016.
std::string trace_events(const Profile& profile, const TracedRank& of);

/// The header of a trace: facts of the run, before its events.
struct TraceHead {
  int64_t first = 0, last = 0;            ///< the steps
  std::string schedule;                   ///< its name
  Placement placement = Placement::ring;  ///< that of its chunks
  std::vector<std::string> ranks;         ///< results of traced_rank()
};

/// Returns the JSON object of a rank: its place, and the seconds in which it was busy,
/// communicating and waiting.
std::string traced_rank(const MeshShape& shape, int rank, const std::array<double, 3>& seconds);

/// Returns a trace file, an event a line. `events`: results of trace_events(), by rank.
std::string trace_text(const TraceHead& head, const std::vector<std::string>& events);

}  // namespace triax::parallel
