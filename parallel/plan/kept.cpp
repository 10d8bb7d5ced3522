#include "parallel/plan/kept.h"

#include <algorithm>

namespace triax::parallel {
namespace {

Kept kept_of(const StepOptions& o, int stage, int64_t micros) {
  PipelineShape shape = o.pipeline();
  shape.micros = int(micros);
  return most_kept(o.schedules.at(o.schedule)(shape, stage));
}

}  // namespace

Kept most_kept(const Actions& list, const std::vector<int>& layers) {
  Kept now, most;
  for (const Action& a : list) {
    int n = layers.empty() ? 1 : layers[size_t(a.chunk)];
    bool ends_input = a.kind == Action::backward || a.kind == Action::backward_input;
    bool ends_weight = a.kind == Action::backward || a.kind == Action::backward_weight;
    if (a.kind == Action::forward || a.kind == Action::reload) now.live += n, now.held += n;
    if (a.kind == Action::offload) now.live -= n, now.held -= n;
    if (a.kind == Action::backward_input) now.waiting += n;
    most = {std::max(most.live, now.live), std::max(most.held, now.held),
            std::max(most.waiting, now.waiting)};
    if (ends_input) now.live -= n;
    if (ends_weight) now.held -= n;
    if (a.kind == Action::backward_weight) now.waiting -= n;
  }
  return most;
}

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
