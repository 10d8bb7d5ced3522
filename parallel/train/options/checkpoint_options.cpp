#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {

Settings checkpoint_settings(TrainOptions& o) {
  return SettingGroup("Checkpoints", OnResume::apart)
      .add("save-every|save-interval|save-steps", "N",
           "steps between checkpoints; 0: only at the end", &o.save_every)
      .add("keep", "N", "newest checkpoints to keep", &o.keep, {.range = {1, huge}})
      .add("keep-best", "",
           "save a checkpoint after each validation that reaches the lowest loss so far, and keep "
           "the best beside the newest",
           &o.keep_best)
      .add("save-async", "", "write checkpoints while training goes on, from a copy in host memory",
           &o.save_async)
      .add("resume|load|resume-from|resume-from-checkpoint", "auto|last-good|PATH",
           "continue from the newest checkpoint of the run directory (auto: if there is one), the "
           "newest undamaged one (last-good), or PATH: a checkpoint, or a run directory, whose "
           "newest is taken",
           &o.resume, {.shown = "start afresh", .derived = true, .saved = false})
      .add("resume-changed", "",
           "resume with another --global-batch, --precision, --seed, --bitwise, --tp-slices or "
           "--row-parts than the checkpoint's",
           &o.resume_changed, {.saved = false})
      .add("init|init-from|from-pretrained|pretrained|model-name-or-path", "CHECKPOINT",
           "initial weights: a checkpoint, a run directory (its newest), or weights that the "
           "program imports; its model settings and tokenizer become the defaults",
           &o.init, {.shown = "random", .derived = true})
      .add("init-new", "PATTERN;..",
           "parameters and buffers that --init leaves as the model makes them, such as "
           "\"head.*; *lora*\", whatever the checkpoint has of that name",
           &o.init_new, {.shown = "none"});
}

void check_checkpoints(const TrainOptions& o) {
  check_input(o.init_new.empty() || !o.init.empty(), Exit::config,
              "init-new={} without init; expected a checkpoint, which the other parameters start "
              "from",
              printable(o.init_new));
  const StepOptions& s = o.step;
  bool files = s.offload != Offloaded::nothing && !s.offload_dir.empty();
  for (auto& [layer, to] : s.places) files |= to == optim::Offload::To::file;
  check_input(!o.save_async || !files, Exit::config,
              "save-async with {}\n  It copies what it saves to memory first, and this run keeps "
              "state in files because memory is short. Leave --save-async out.",
              s.places.empty() ? fmt::format("offload-dir={}", printable(s.offload_dir))
                               : "layers that device-map places on disk");
  check_input(!o.resume_changed || !o.resume.empty(), Exit::config,
              "resume-changed without resume\n  Nothing is resumed that could have changed. Add "
              "--resume auto, or leave it out.");
}

}  // namespace triax::parallel
