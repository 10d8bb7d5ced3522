#include <algorithm>
#include <numeric>
#include <set>

#include "triax/core/check.h"
#include "triax/parallel/data/held_once.h"
#include "triax/parallel/pipeline/partition.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

/// Checks that each rank keeps an equal share of the elements of a recomputed layer's input.
void check_split(const Facts& facts, const StepOptions& o) {
  if (o.recompute != Recompute::block_split) return;
  for (size_t i = 1; i + 1 < facts.layers().size(); ++i) {
    const Shape& in = facts.layers()[i - 1].out.shape;
    check_input(in.numel() % o.mesh.tp == 0, Exit::config,
                "layer {}: recompute=block-split: tp={} does not divide the {} elements of its "
                "input {}\n  Take another --micro-batch or --tp, or --recompute block.",
                facts.layers()[i].name, o.mesh.tp, in.numel(), in);
  }
}

/// Checks that layers that share a parameter are where its gradients are summed.
void check_shared(const Facts& facts, const PipelineShape& shape,
                  const std::vector<int64_t>& counts) {
  std::vector<int> stage;  // the stage of each layer
  for (int v = 0; v < shape.virtual_stages(); ++v)
    stage.insert(stage.end(), size_t(counts[size_t(v)]), shape.stage_of(v));
  for (auto& p : facts.shared()) {
    std::set<int> stages;
    for (size_t layer : p.layers) stages.insert(stage[layer]);
    check_holders({p.name, p.tied, {stages.begin(), stages.end()}}, shape.last_stage());
  }
}

bool keeps_together(const Facts& facts, const PipelineShape& shape,
                    const std::vector<int64_t>& counts) try {
  check_shared(facts, shape, counts);
  return true;
} catch (const Error&) {
  return false;
}

std::vector<int64_t> counts_of(const Facts& facts, const StepOptions& o) {
  for (auto& [name, to] : o.places)
    check_input(std::ranges::count(facts.layers(), name, &LayerFacts::name) > 0, Exit::config,
                "places: there is no layer `{}` in the model", printable(name));
  auto layers = std::ssize(facts.layers());
  auto shape = o.pipeline();
  if (!o.placement.empty()) return placement_of(o.placement, shape, layers);
  check_input(shape.virtual_stages() <= layers, Exit::config,
              "pp={} x chunks={} = {} virtual stages of a model of {} layers\n"
              "  Every virtual stage needs a layer. Valid pp x chunks: 1 to {}.",
              o.mesh.pp, o.chunks, shape.virtual_stages(), layers, layers);
  auto costs = transformed(facts.layers(), &LayerFacts::cost);
  if (o.place && shape.virtual_stages() > 1) {
    auto counts = o.place(costs, shape);
    auto sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    check_input(sum == layers, Exit::config,
                "placement: that of the program, {}, adds up to {}; expected the {} layers of the "
                "model",
                join(counts, ","), sum, layers);
    return placement_of(join(counts, ","), shape, layers);
  }
  auto counts = partition_chunks(costs, shape);
  return keeps_together(facts, shape, counts) ? counts : partition(costs, shape.virtual_stages());
}

}  // namespace

std::vector<int64_t> place(const Facts& facts, const StepOptions& o) {
  check_split(facts, o);
  auto counts = counts_of(facts, o);
  check_shared(facts, o.pipeline(), counts);
  return counts;
}

}  // namespace triax::parallel
