#include "parallel/program/verbs.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "core/files.h"
#include "parallel/train/options.h"

namespace triax::parallel {
namespace {

constexpr const char* tried = "all are tried";

}  // namespace

Verb train_verb(TrainOptions& o, const ProgramOptions& p, int64_t& mesh_for) {
  SettingGroup elastic("Elastic restarts");
  elastic.add("mesh-for", "N",
              "print the mesh that this run would use on N ranks, and do not train "
              "(for launch.sh --elastic)",
              &mesh_for, {.range = {0, 65536}, .shown = "off", .saved = false, .key = false});
  return {"train",
          p.what,
          joined({p.settings, train_settings(o), elastic}),
          {p.name + " train --steps 500",
           p.name + " train --comm threads --ranks 8 --dp 2 --pp 2 --tp 2",
           "mpirun -np 4 " + p.name + " train --tp 2 --zero 1"}};
}

Verb parity_verb(TrainOptions& o, ParityRuns& runs, const ProgramOptions& p) {
  SettingGroup ranks("Mesh");
  ranks.add("mesh", "DPxPPxTP", "ranks on each axis, which are threads", &runs.mesh)
      .add(
          "same-micro-batches", "",
          "let the one rank take the mesh's micro-batches, not the whole batch at once: for a loss "
          "that depends on what else is in the micro-batch",
          &runs.same_micro_batches);
  Settings optimizer = optimizer_settings(o);
  for (Setting& s : optimizer)
    if (s.name == "global-batch") s.shown = "micro-batch x dp x the larger of 2 and pp";
    else if (s.name == "eps") s.help += "; below 1e-6 it counts as 1e-6";
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
  SettingGroup own("Plan");
  own.add("ranks", "N", "ranks to plan for", &o.ranks,
          {.range = {0, 65536}, .shown = "those of the mesh"})
      .add("hardware", "NAME|FILE",
           fmt::format("what a rank runs on: {}, or a TOML file as `calibrate` writes it",
                       join(hardware_names(), ", ")),
           &o.hardware)
      .add("memory", "SIZE", "what tensors of a rank may take, like 72GB", &o.memory,
           {.shown = "the hardware's memory, less its reserve"})
      .add("attention", "fused|stored",
           "stored: time steps as Megatron-LM took them until 2022, to compare with its published "
           "runs: scores in memory, gradients added by separate kernels and summed after backward; "
           "memory is still predicted without scores",
           choice(o.framework, {{"fused", Framework::triax}, {"stored", Framework::megatron}}))
      .add("top", "N", "rows to print", &o.top, {.range = {1, huge}})
      .add("json", "", "print only an object for each candidate whose memory was rehearsed",
           &o.json)
      .add("check", "", "measure the best plan: run one step on threads here and compare memory",
           &o.check);
  Settings all =
      joined({own, p.settings, mesh_settings(o.train.step), memory_settings(o.train.step),
              only(optimizer_settings(o.train),
                   {"micro-batch", "global-batch", "average", "optimizer", "groups"}),
              only(run_settings(o.train), {"precision", "config"})});
  for (Setting& s : all) {
    auto is = [&](std::initializer_list<const char*> names) {
      return std::ranges::count(names, s.name) > 0;
    };
    if (is({"dp", "pp", "tp", "micro-batch"})) s.range.min = 0;
    if (is({"dp", "pp", "tp"})) s.shown = "all that the ranks allow";
    if (is({"zero", "schedule", "chunks", "sequence-parallel"})) s.shown = tried;
    if (is({"recompute"})) s.shown = "all but block-split are tried";
    if (is({"micro-batch"}))
      s.shown = o.train.step.micro_batch > 0 ? "" : "powers of two up to 64 are tried";
    if (is({"global-batch"})) s.shown = "micro-batch (1 if it is open) x ranks";
  }
  std::string example =
      p.name + " plan --ranks 64 --hardware h100 --precision bf16 --global-batch 512";
  for (auto& need : p.plan_needs) example += fmt::format(" --{} {}", need.name, need.example);
  return {"plan",
          "Predicts memory and time of a step for every way to train on so many ranks.",
          all,
          {example}};
}

bool is_planned(const Setting& s) {
  constexpr std::string_view mesh[] = {
      "dp",        "pp",          "tp",           "zero",      "schedule",         "chunks",
      "recompute", "micro-batch", "global-batch", "precision", "sequence-parallel"};
  return s.group == "Plan" || std::ranges::count(mesh, s.name) > 0;
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
