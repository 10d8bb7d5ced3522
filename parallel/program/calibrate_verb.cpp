#include <cstdio>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/plan/calibrate.h"
#include "triax/parallel/program/verbs.h"

namespace triax::parallel {

namespace {

struct CalibrateOptions {
  LaunchOptions launch = {};
  std::string out = {};  ///< empty: stdout
};

/// Measures, and writes the result. Throws Error 73, before it measures, for a file that is there
/// or cannot be made.
void run_calibrate(const CalibrateOptions& o, const Invocation& call) {
  constexpr double much = 0.2;
  check_input(o.out.empty() || !disk().exists(o.out), Exit::cannot_write,
              "calibrate: {} exists; expected a new file\n  Choose another --out, or remove it.",
              printable(o.out));
  if (!o.out.empty()) check_output("out", o.out);
  if (o.launch.nondeterministic) set_gpu_bits(GpuBits::may_differ);
  on_ranks(o.launch, call.argc, call.argv, [&](World& world) {
    if (world.rank() == 0) std::fputs("calibrate: measuring takes about ten seconds\n", stderr);
    Calibration found = calibrate(world);
    std::string file = hardware_file(found.hardware);
    on_first(world.host(), [&] {
      if (found.spread > much)
        fmt::print(
            stderr,
            "calibrate: warning: the middle half of the measurements spans {:.0f} % of their "
            "median; expected less than {:.0f} %\n  Run it again while nothing else runs, "
            "with no more ranks than cores.\n",
            100 * found.spread, 100 * much);
      if (o.out.empty()) std::fputs(file.c_str(), stdout);
      else disk().write(o.out, file);
    });
  });
}

}  // namespace

Verb calibrate_verb(ProgramOptions& p) {
  auto o = std::make_shared<CalibrateOptions>();
  SettingGroup group("Calibrate");
  group.add("out|output", "FILE", "hardware file to write, for plan --hardware FILE", &o->out,
            {.shown = "stdout"});
  return {.name = "calibrate",
          .what =
              "Measures kernels and collectives on ranks of this machine, and writes a "
              "hardware file.",
          .settings = joined({group, only(launch_settings(o->launch),
                                          {"comm", "ranks", "device", "nondeterministic"})}),
          .examples = {p.name + " calibrate --comm threads --ranks 2 --out here.toml"},
          .run = [o](const Invocation& call) { return run_calibrate(*o, call), 0; }};
}

}  // namespace triax::parallel
