// A schedule and a placement of layers of one's own:
//   pipeline parity --mesh 1x4x1 --schedule waves
//   pipeline schedule --schedule waves --pp 4 --micros 8
#include <algorithm>
#include <numeric>

#include "points.h"

using namespace triax::parallel;

/// As many micro-batches as stages forward, then the same backward, then the next.
Actions waves(const PipelineShape& shape, int stage) {
  check_arguments("schedule waves", shape, stage);
  Actions list;
  for (int first = 0; first < shape.micros; first += shape.stages) {
    int end = std::min(first + shape.stages, shape.micros);
    for (int c = 0; c < shape.chunks; ++c)
      for (int m = first; m < end; ++m) list.push_back({Action::forward, c, m});
    for (int c = shape.chunks - 1; c >= 0; --c)
      for (int m = first; m < end; ++m) list.push_back({Action::backward, c, m});
  }
  return list;
}

/// Stage s of 1F1B holds the activations of stages - s micro-batches: it gets layers in inverse
/// proportion, so that all stages hold equally many. Costs stand for activations here.
std::vector<int64_t> equal_activations(const std::vector<double>& costs,
                                       const PipelineShape& shape) {
  auto pieces = size_t(shape.virtual_stages());
  std::vector<double> share;
  for (int v = 0; v < shape.virtual_stages(); ++v)
    share.push_back(1. / (shape.stages - shape.stage_of(v)));
  double all = std::accumulate(costs.begin(), costs.end(), 0.);
  double unit = all / std::accumulate(share.begin(), share.end(), 0.), due = 0, used = 0;
  std::vector<int64_t> layers(pieces);
  size_t next = 0;
  for (size_t piece = 0; piece < pieces; ++piece) {
    due += share[piece] * unit;
    size_t last = costs.size() - (pieces - 1 - piece);  // one layer at least for each of the others
    for (; next < last; used += costs[next++], ++layers[piece])
      if (piece + 1 < pieces && layers[piece] > 0 && used + costs[next] / 2 > due) break;
  }
  return layers;
}

int main(int argc, char** argv) {
  ProgramOptions o = program_of("pipeline", "Tries a schedule and a placement.");
  o.train.step.schedules["waves"] = waves;
  o.train.step.schedules["waves-v"] = Schedule(waves, Placement::v, 2);
  o.train.step.place = equal_activations;
  return program(argc, argv, o);
}
