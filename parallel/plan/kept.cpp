#include "triax/parallel/plan/kept.h"

#include <algorithm>

namespace triax::parallel {
namespace {

Kept kept_of(const StepOptions& o, int stage, int64_t micros) {
  PipelineShape shape = o.pipeline();
  shape.micros = int(micros);
  return most_kept(o.schedules.at(o.schedule)(shape, stage));
}

}  // namespace

bool is_built_in(const StepOptions& o) {
  auto names = schedule_names();
  return std::ranges::count(names, o.schedule) > 0;
}

int64_t filling(const StepOptions& o, int stage) {
  int64_t all = o.accumulation(), stages = o.mesh.pp, many = 8 * stages;
  if (!is_built_in(o)) return all;
  Kept full = kept_of(o, stage, many);
  // Lists of several chunks take micro-batches in groups of as many as there are stages.
  bool groups = o.chunks > 1;
  for (int64_t micros = groups ? 2 * stages : full.held; micros < std::min(all, many);
       micros += groups ? stages : 1)
    if (kept_of(o, stage, micros) == full) return std::min(all, micros + (groups ? 0 : 2));
  return all;
}

}  // namespace triax::parallel
