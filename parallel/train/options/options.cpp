#include "triax/parallel/train/options/options.h"

#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {

Settings train_settings(TrainOptions& o) {
  return joined({optimizer_settings(o), mesh_settings(o.step), launch_settings(o.launch),
                 run_settings(o), memory_settings(o.step), checkpoint_settings(o)});
}

std::map<std::string, std::string> values_of(const Settings& settings) {
  std::map<std::string, std::string> all;
  for (auto& s : settings) all[s.name] = literal(s);
  return all;
}

void resolve(TrainOptions& o, int64_t ranks) {
  resolve_mesh(o.step, ranks);
  resolve_optimizer(o);
}

void check_options(const TrainOptions& o, int64_t ranks, const FittingMesh& fits) {
  check_run(o);
  check_shape(o.step.mesh, int(ranks), [&](const MeshShape& shape) {
    TrainOptions on = o;
    on.step.mesh = shape;
    try {
      check_bitwise(on);
    } catch (const Error&) {
      return false;
    }
    return !fits || fits(shape);
  });
  check_optimizer(o);  // sizes of a batch, from which the mesh's schedule follows
  check_mesh(o);
  check_memory(o);
  check_checkpoints(o);
}

}  // namespace triax::parallel
