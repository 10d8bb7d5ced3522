// Prints a pipeline schedule, or a few numbers of another kind of parallelism, as text or as the
// JSON that scripts/draw.py draws:
//   schedule --schedule interleaved --chunks 2 --stages 4 --micros 8
//   schedule --mesh 2x2x2 --json | scripts/draw.py --svg mesh.svg
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "core/check.h"
#include "core/files.h"
#include "examples/schedule/measure.h"
#include "parallel/comm/launch/world.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/timeline.h"

namespace triax::schedule {
namespace {

using json = nlohmann::ordered_json;

struct Flags {
  std::string schedule = "1f1b", mesh;
  parallel::PipelineShape shape{.stages = 4, .chunks = 1, .micros = 8};
  int zero = 0, tensor = 0, columns = 100;
  bool json = false;
};

/// False: help was asked for, and printed.
bool parse(Flags& flags, int argc, char** argv) {
  CLI::App app("Prints a pipeline schedule, a mesh, or what ZeRO and tensor parallelism do.",
               "schedule");
  auto option = [&](const char* name, auto& value, const std::string& help) {
    return app.add_option(name, value, help)
        ->capture_default_str()
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  };
  option("--schedule", flags.schedule,
         fmt::format("one of: {}", fmt::join(parallel::schedule_names(), ", ")));
  option("--stages", flags.shape.stages, "pipeline stages")->check(CLI::Range(1, 64));
  option("--chunks", flags.shape.chunks, "model chunks per stage")->check(CLI::Range(1, 26));
  option("--micros", flags.shape.micros, "micro-batches")->check(CLI::Range(1, 1000));
  option("--mesh", flags.mesh, "instead: the groups of this mesh, DPxPPxTP, like 2x2x2");
  option("--zero", flags.zero, "instead: bytes held and sent with ZeRO on this many ranks")
      ->check(CLI::Range(1, 8));
  option("--tensor", flags.tensor, "instead: collectives of tensor-parallel layers on 2 or 4 ranks")
      ->check(CLI::Range(2, 4));
  option("--columns", flags.columns, "wrap text at this width")->check(CLI::Range(1, 100000));
  app.add_flag("--json", flags.json, "print JSON, which scripts/draw.py draws");
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

/// `ranks`: the [dp, pp, tp] of each.
json describe_points(const parallel::MeshShape& s) {
  json ranks = json::array();
  for (int rank = 0; rank < s.size(); ++rank) {
    auto at = point_of(s, rank);
    ranks.push_back({at.dp, at.pp, at.tp});
  }
  return {{"dp", s.dp}, {"pp", s.pp}, {"tp", s.tp}, {"ranks", ranks}};
}

int run(int argc, char** argv) {
  Flags flags;
  if (!parse(flags, argc, argv)) return 0;
  std::string text;
  if (flags.zero > 0) {
    text = json{{"zero", measure_zero(flags.zero)}}.dump(flags.json ? -1 : 2);
  } else if (flags.tensor > 0) {
    text = json{{"tensor", measure_tensor(flags.tensor)}}.dump(flags.json ? -1 : 2);
  } else if (!flags.mesh.empty()) {
    auto mesh = mesh_of(flags.mesh);
    text = flags.json ? json{{"mesh", describe_points(mesh)}}.dump() : describe(mesh);
  } else {
    auto t = parallel::make_timeline(flags.schedule, parallel::schedule_named(flags.schedule),
                                     flags.shape);
    text = flags.json ? timeline_json(t) : timeline_text(t, flags.columns);
  }
  std::puts(text.substr(0, text.find_last_not_of('\n') + 1).c_str());
  return 0;
}

}  // namespace
}  // namespace triax::schedule

int main(int argc, char** argv) {
  return triax::parallel::run_main(argc, argv, triax::schedule::run);
}
