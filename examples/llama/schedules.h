#pragma once
#include <algorithm>

#include "triax/parallel/pipeline/schedule.h"

/// A pipeline schedule of this program's own: 1F1B whose warm-up is twice as deep. More activations
/// are live, and slow links delay it less. One chunk per stage.
inline triax::parallel::Actions eager_1f1b(const triax::parallel::PipelineShape& shape, int stage) {
  using triax::parallel::Action;
  triax::parallel::Actions list;
  int warm = std::min(2 * (shape.stages - stage - 1), shape.micros);
  for (int m = 0; m < warm; ++m) list.push_back({Action::forward, 0, m});
  for (int m = warm; m < shape.micros; ++m) {
    list.push_back({Action::forward, 0, m});
    list.push_back({Action::backward, 0, m - warm});
  }
  for (int m = shape.micros - warm; m < shape.micros; ++m) list.push_back({Action::backward, 0, m});
  return list;
}
