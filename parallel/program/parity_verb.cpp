#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/program/verbs.h"

namespace triax::parallel {
namespace {

struct ParityOptions {
  TrainOptions train;
  std::string mesh = "2x2x2";       ///< DPxPPxTP
  bool same_micro_batches = false;  ///< the one rank takes the micro-batches of the mesh
};

Exit run_parity(const ProgramOptions& p, ParityOptions& o, const UseParity& use) {
  check_not_launched("parity runs in one process");
  MeshShape mesh = mesh_of(o.mesh);
  mesh.more = o.train.step.mesh.more;
  o.train.step.mesh = mesh;
  choose_batch(o.train);
  resolve(o.train, o.train.step.mesh.size());
  check_options(o.train, o.train.step.mesh.size());
  OneRank takes = o.same_micro_batches ? OneRank::same_micro_batches : OneRank::whole_batch;
  return use ? use(p.task(), o.train, takes) : parity(p.task(), o.train, takes);
}

}  // namespace

Verb parity_verb(ProgramOptions& p, std::string_view asked, const UseParity& use) {
  auto o = std::make_shared<ParityOptions>();
  TrainOptions& train = o->train = p.train;
  train.steps = std::min<int64_t>(train.steps, 4);  // trained three times
  train.lr.warmup = -1;                             // follows the steps
  if (asked == "parity" && p.parity_defaults) p.parity_defaults(train);
  SettingGroup own("Parity");
  own.add("mesh|dp|pp|ep|cp|tp", "DPxPPxTP",
          "ranks on each axis, which are threads; or DPxPPxCPxTP, or DPxPPxEPxCPxTP", &o->mesh)
      .add(
          "same-micro-batches", "",
          "let the one rank take the mesh's micro-batches, not the whole batch at once: for a loss "
          "that depends on what else is in the micro-batch",
          &o->same_micro_batches);
  Settings training = train_settings(train);
  std::erase_if(training, [](auto& s) { return s.parity != true; });
  for (Setting& s : training)
    if (s.name == "global-batch") s.shown = "micro-batch x dp x the larger of 2 and pp";
    else if (s.name == "eps") s.help += "; below 1e-6 it counts as 1e-6";
  return {
      .name = "parity",
      .what =
          "Trains on one rank and on a mesh of threads, and finds the first tensor that differs.",
      .settings = joined({own, p.settings, training}),
      .examples = {p.name + " parity --mesh 2x2x2 --zero 3 --schedule zb-h1",
                   p.name + " parity --mesh 1x1x4 --sequence-parallel --precision bf16"},
      .run = [&p, o, use](auto&) { return int(run_parity(p, *o, use)); }};
}

MeshShape mesh_of(const std::string& text) {
  MeshShape shape;
  std::vector<int*> sizes{&shape.dp, &shape.pp, &shape.ep, &shape.cp, &shape.tp};
  auto unnamed = std::clamp<int64_t>(4 - std::ranges::count(text, 'x'), 0, 2);  // of ep and cp
  sizes.erase(sizes.begin() + 2, sizes.begin() + 2 + unnamed);
  auto parts = parts_of(text, 'x');
  bool fine = parts.size() == sizes.size();
  double ranks = 1;
  for (size_t i = 0; fine && i < parts.size(); ranks *= *sizes[i++])
    fine = parse_number(parts[i], *sizes[i]) && *sizes[i] >= 1 && *sizes[i] <= 256;
  check_input(fine, Exit::config,
              "mesh `{}`; expected dp x pp x tp, dp x pp x cp x tp or dp x pp x ep x cp x tp, each "
              "from 1 to 256, like 2x2x2",
              printable(text));
  check_input(ranks <= 4096, Exit::config, "mesh `{}`; expected dp x pp x tp of at most 4096 ranks",
              printable(text));
  return shape;
}

}  // namespace triax::parallel
