#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {
namespace {

void check_offload(const TrainOptions& o) {
  const StepOptions& s = o.step;
  bool has_map = !o.launch.device_map.empty();  // it may keep all in memory
  bool off = s.offload == Offloaded::nothing && s.places.empty();
  std::string what =
      s.places.empty() ? fmt::format("offload={}", name_of(s.offload)) : "device-map";
  check_input(!s.optimizer || off, Exit::config,
              "{} with an optimizer of the program's own\n"
              "  Only AdamW works on what is offloaded. Leave --offload out.",
              what);
  check_input(s.algorithm == Algorithm::adamw || off, Exit::config,
              "{} with optimizer={}\n"
              "  Only AdamW works on what is offloaded. Leave --offload or --optimizer out.",
              what, s.algorithm == Algorithm::lion ? "lion" : "muon");
  check_input(s.average == 0 || off, Exit::config,
              "{} with average={}\n"
              "  The average is kept with the weights. Leave --offload or --average out.",
              what, s.average);
  check_input(s.offload < Offloaded::parameters || s.zero == Zero::parameters, Exit::config,
              "offload=params with zero={}\n  Weights come for one layer at a time, which ZeRO-3 "
              "is for, on one rank too. Add --zero 3, or use --offload optimizer.",
              int(s.zero));
  if (s.offload_dir.empty()) return;
  check_input(!off || has_map, Exit::config,
              "offload-dir={} with offload=off\n  Nothing would be there. Add --offload optimizer, "
              "or --offload params with --zero 3.",
              printable(s.offload_dir));
  optim::check_offload_directory(s.offload_dir);
}

void check_recompute(const StepOptions& o) {
  if (o.recompute != Recompute::block_split) return;
  check_input(o.mesh.tp > 1 && !o.sequence_parallel, Exit::config,
              "recompute=block-split with {}\n  {}. Valid: off, selective, block.",
              o.mesh.tp > 1 ? "sequence-parallel" : "tp=1",
              o.mesh.tp > 1
                  ? "Each rank has only its rows of a block's input: they are sharded already"
                  : "There are no ranks to shard a block's input over");
}

}  // namespace

Settings memory_settings(StepOptions& s) {
  return SettingGroup("Memory", OnResume::free, {.plan = InPlan::taken, .parity = true})
      .add("recompute|activation-checkpointing|gradient-checkpointing|recompute-granularity",
           "NAME",
           "activation recomputation: off, selective (attention and activation function), block "
           "(all of a block but its input), block-split (as block, with the saved input sharded "
           "over tp)",
           choice(s.recompute, {{"off", Recompute::off},
                                {"selective", Recompute::selective},
                                {"block", Recompute::block},
                                {"block-split", Recompute::block_split}}),
           {.plan = InPlan::sought})
      .add("offload", "off|optimizer|params",
           "what is kept in host memory between uses: nothing, optimizer state, or (with --zero 3) "
           "weights and gradients too; results are the same",
           choice(s.offload, {{"off", Offloaded::nothing},
                              {"optimizer", Offloaded::optimizer},
                              {"params", Offloaded::parameters}}))
      .add("offload-dir", "DIR",
           "keep it in files in DIR instead, which are removed when the run ends", &s.offload_dir,
           {.shown = "none"});
}

void check_memory(const TrainOptions& o) {
  check_recompute(o.step);
  check_offload(o);
}

const char* name_of(Offloaded what) {
  return what == Offloaded::parameters  ? "params"
         : what == Offloaded::optimizer ? "optimizer"
                                        : "off";
}

optim::Offload StepOptions::place_of(Offloaded what) const {
  using To = optim::Offload::To;
  To to = offload < what ? To::off : offload_dir.empty() ? To::host : To::file;
  return {.to = to, .directory = offload_dir};  // places of single layers need it too
}

}  // namespace triax::parallel
