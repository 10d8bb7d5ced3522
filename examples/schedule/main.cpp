// Prints what every stage of a pipeline does when, or draws it, or other parts of parallelism:
//   schedule --schedule zb-h1 --stages 4 --micros 8
//   schedule --schedule interleaved --chunks 2 --stages 4 --micros 8 --svg interleaved.svg
//   schedule --mesh 2x2x2 --svg mesh.svg
//   schedule --zero 4 --svg zero.svg
//   schedule --tensor 2 --svg tensor.svg
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/check.h"
#include "core/files.h"
#include "examples/schedule/mesh_drawing.h"
#include "examples/schedule/tensor_drawing.h"
#include "examples/schedule/timeline.h"
#include "examples/schedule/zero_drawing.h"
#include "parallel/comm/launch/world.h"

namespace triax::schedule {
namespace {

struct Flags {
  std::string schedule = "1f1b", mesh, svg;
  parallel::PipelineShape shape{.stages = 4, .chunks = 1, .micros = 8};
  int zero = 0, tensor = 0;
};

/// False: help was asked for, and printed.
bool parse(Flags& flags, int argc, char** argv) {
  CLI::App app(
      "Prints or draws a pipeline schedule, a mesh, what ZeRO shares out, or a tensor-parallel "
      "block.",
      "schedule");
  auto option = [&](const char* name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)
        ->capture_default_str()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  option("--schedule", flags.schedule,
         fmt::format("one of: {}", fmt::join(parallel::schedule_names(), ", ")));
  option("--stages", flags.shape.stages, "stages of the pipeline")->check(CLI::Range(1, 64));
  option("--chunks", flags.shape.chunks, "chunks a stage")->check(CLI::Range(1, 26));
  option("--micros", flags.shape.micros, "micro-batches")->check(CLI::Range(1, 1000));
  option("--mesh", flags.mesh, "draw this mesh instead: DPxPPxTP, like 2x2x2");
  option("--zero", flags.zero, "what this many ranks hold with ZeRO instead")
      ->check(CLI::Range(1, 8));
  option("--tensor", flags.tensor, "a transformer block on this many ranks instead")
      ->check(CLI::Range(2, 4));
  option("--svg", flags.svg, "write the drawing to this file");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return false;
  } catch (const CLI::ParseError& e) {
    fail(Exit::usage, "schedule: {}", printable(e.what()));
  }
  return true;
}

parallel::MeshShape mesh_of(const std::string& text) {
  parallel::MeshShape s;
  char rest = 0;
  int read = std::sscanf(text.c_str(), "%4dx%4dx%4d%c", &s.dp, &s.pp, &s.tp, &rest);
  check_input(read == 3 && s.dp > 0 && s.pp > 0 && s.tp > 0 && s.size() <= 256, Exit::usage,
              "--mesh: `{}`; expected DPxPPxTP of at most 256 ranks, like 2x2x2", printable(text));
  return s;
}

/// The file appears whole or not at all, in the place of one that was there.
void write(const std::string& path, const std::string& text) {
  std::string unfinished = path + ".tmp";
  disk().remove(unfinished);  // of a run that was killed
  disk().write(unfinished, text);
  disk().rename(unfinished, path);
}

int run(int argc, char** argv) {
  Flags flags;
  if (!parse(flags, argc, argv)) return 0;
  std::string text, drawing;
  if (flags.zero > 0) {
    ZeroComparison zero = compare_zero(flags.zero);
    text = as_text(zero), drawing = as_svg(zero);
  } else if (flags.tensor > 0) {
    auto plain = trace_block(flags.tensor, false), sequence = trace_block(flags.tensor, true);
    text = as_text(plain) + "\n" + as_text(sequence), drawing = as_svg({plain, sequence});
  } else if (flags.mesh.empty()) {
    Timeline timeline = make_timeline(flags.schedule, flags.shape);
    text = as_text(timeline), drawing = as_svg(timeline);
  } else {
    parallel::MeshShape mesh = mesh_of(flags.mesh);
    text = describe(mesh), drawing = as_svg(mesh);
  }
  if (flags.svg.empty()) std::fputs(text.c_str(), stdout);
  else write(flags.svg, drawing);
  return 0;
}

}  // namespace
}  // namespace triax::schedule

int main(int argc, char** argv) {
  return triax::parallel::run_main(argc, argv, triax::schedule::run);
}
