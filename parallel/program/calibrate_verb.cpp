#include "parallel/program/calibrate_verb.h"

#include <cstdio>
#include <filesystem>

#include "core/check.h"
#include "core/files.h"
#include "core/gpus.h"
#include "parallel/comm/together.h"
#include "parallel/plan/calibrate.h"
#include "parallel/program/output_file.h"
#include "parallel/program/program.h"

namespace triax::parallel {

Verb calibrate_verb(CalibrateOptions& o, const std::string& program) {
  SettingGroup group("Calibrate");
  group.add("out", "FILE", "hardware file to write, for plan --hardware FILE", &o.out,
            {.shown = "stdout"});
  return {"calibrate",
          "Measures kernels and collectives on ranks of this machine, and writes a hardware file.",
          joined({group, only(launch_settings(o.launch),
                              {"comm", "ranks", "device", "nondeterministic"})}),
          {program + " calibrate --comm threads --ranks 2 --out here.toml"}};
}

int calibrate(const CalibrateOptions& o, int argc, char** argv) {
  const std::string& out = o.out;
  check_input(out.empty() || !std::filesystem::exists(out), Exit::cannot_write,
              "calibrate: {} exists\n  Choose another --out, or remove it.", out);
  if (!out.empty()) check_output("out", out);
  if (o.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
  on_ranks(o.launch, argc, argv, [&](World& world) {
    if (world.rank() == 0) std::fputs("calibrate: measuring takes about ten seconds\n", stderr);
    Calibration found = calibrate(world);
    std::string file = hardware_file(found.hardware);
    on_first(world.host(), [&] {
      if (found.spread > 0.2)
        fmt::print(stderr,
                   "calibrate: warning: repeated measurements differ by {:.0f} %\n  Does something "
                   "else run? Are there more ranks than cores? Then `plan` may be as far off.\n",
                   100 * found.spread);
      if (out.empty()) std::fputs(file.c_str(), stdout);
      else disk().write(out, file);
    });
  });
  return 0;
}

}  // namespace triax::parallel
