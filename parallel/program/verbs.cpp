#include "parallel/program/verbs.h"

#include <charconv>

#include "core/check.h"
#include "core/files.h"
#include "parallel/train/options.h"

namespace triax::parallel {

Verb train_verb(TrainOptions& o, const ProgramOptions& p) {
  return {"train",
          p.what,
          joined({p.settings, train_settings(o)}),
          {p.name + " train --steps 500",
           p.name + " train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2",
           "mpirun -np 4 " + p.name + " train --tp 2 --zero 1"}};
}

Verb parity_verb(TrainOptions& o, std::string& mesh, const ProgramOptions& p) {
  SettingGroup ranks("Mesh");
  ranks.add("mesh", "DPxPPxTP", "ranks on each axis, which are threads", &mesh);
  Settings optimizer = optimizer_settings(o);
  for (Setting& s : optimizer)
    if (s.name == "global-batch") s.shown = "micro-batch x dp x the larger of 2 and pp";
  return {"parity",
          "Trains on one rank and on a mesh of threads, and finds the first tensor that differs.",
          joined({p.settings, ranks, without(mesh_settings(o.step), {"dp", "pp", "tp"}), optimizer,
                  memory_settings(o.step),
                  only(run_settings(o), {"config", "seed", "precision", "loss-scale", "workers"}),
                  only(launch_settings(o.launch), {"device"})}),
          {p.name + " parity --mesh 2x2x2 --zero 3 --schedule zb-h1",
           p.name + " parity --mesh 1x1x4 --sequence-parallel --precision bf16"}};
}

Verb plan_verb(PlanOptions& o, const ProgramOptions& p) {
  SettingGroup own("Plan"), zero("Mesh");
  own.add("ranks", "N", "ranks to plan for", &o.ranks,
          {.range = {0, 65536}, .shown = "those of the mesh"})
      .add("hardware", "NAME", "what a rank runs on: cpu (one core), a100, h100, h200", &o.hardware,
           {.choices = hardware_names()})
      .add("memory", "SIZE", "of one rank, like 80GB", &o.memory, {.shown = "the hardware's"})
      .add("node", "N", "ranks (GPUs) per node", &o.per_node, {.range = {1, 65536}})
      .add("top", "N", "rows to print", &o.top, {.range = {1, huge}})
      .add("check", "", "measure the best plan: run one step on threads here and compare memory",
           &o.check);
  zero.add("zero", "0|1|2|3",
           "ZeRO stage: what dp shards; 1 optimizer state, 2 gradients too, 3 weights too", &o.zero,
           {.range = {-1, 3}, .shown = "all are tried"});
  Settings mesh = without(mesh_settings(o.train.step), {"zero"});
  for (Setting& s : mesh)
    if (s.name == "dp" || s.name == "pp" || s.name == "tp")
      s.range.min = 0, s.shown = "all that the ranks allow";
  Settings batch =
      only(optimizer_settings(o.train), {"micro-batch", "global-batch", "average", "optimizer"});
  for (Setting& s : batch)
    if (s.name == "global-batch") s.shown = "micro-batch x ranks";
  return {"plan",
          "Predicts memory and time of a step for every mesh that the ranks allow.",
          joined({own, zero, p.settings, mesh, memory_settings(o.train.step), batch,
                  only(run_settings(o.train), {"precision", "config"})}),
          {p.name + " plan --ranks 64 --hardware h100 --precision bf16 --global-batch 512"}};
}

MeshShape mesh_of(const std::string& text) {
  MeshShape shape;
  int* sizes[] = {&shape.dp, &shape.pp, &shape.tp};
  std::string_view left = text;
  for (int* size : sizes) {
    auto [end, error] = std::from_chars(left.data(), left.data() + left.size(), *size);
    bool last = size == sizes[2], closed = end == left.data() + left.size();
    check_input(error == std::errc() && *size >= 1 && *size <= 256 &&
                    (last ? closed : !closed && *end == 'x'),
                Exit::config, "mesh `{}`; expected dp x pp x tp, each from 1 to 256, like 2x2x2",
                printable(text));
    left = left.substr(size_t(end - left.data()) + (last ? 0 : 1));
  }
  check_input(shape.size() <= 4096, Exit::config,
              "mesh `{}`; expected dp x pp x tp of at most 4096 ranks", printable(text));
  return shape;
}

}  // namespace triax::parallel
