// Prints a pipeline schedule, or a few numbers of another kind of parallelism, as text or as the
// JSON that scripts/draw.py draws:
//   schedule --schedule interleaved --chunks 2 --stages 4 --micros 8
//   schedule --mesh 2x2x2 --json | scripts/draw.py --svg mesh.svg
#include <fmt/format.h>

#include <cstdio>

#include "examples/schedule/measure.h"
#include "parallel/comm/launch/world.h"
#include "parallel/pipeline/timeline.h"
#include "parallel/program/verbs.h"
#include "parallel/settings/terminal.h"

namespace triax::schedule {
namespace {

using json = nlohmann::ordered_json;

struct Flags {
  std::string schedule = "1f1b", mesh;
  parallel::PipelineShape shape{.stages = 4, .chunks = 1, .micros = 8};
  int zero = 0, tensor = 0, columns = 100;
  bool json = false;
};

parallel::Verb verb_of(Flags& f) {
  parallel::SettingGroup group("Flags");
  group
      .add("schedule", "NAME", "pipeline schedule", &f.schedule,
           {.choices = parallel::schedule_names()})
      .add("stages", "N", "pipeline stages", &f.shape.stages, {.range = {1, 64}})
      .add("chunks", "N", "model chunks per stage", &f.shape.chunks, {.range = {1, 26}})
      .add("micros", "N", "micro-batches", &f.shape.micros, {.range = {1, 1000}})
      .add("mesh", "DPxPPxTP", "instead: the groups of this mesh", &f.mesh, {.shown = "none"})
      .add("zero", "N", "instead: bytes held and sent with ZeRO on this many ranks", &f.zero,
           {.range = {1, 8}, .shown = "none"})
      .add("tensor", "2|4", "instead: collectives of tensor-parallel layers on these ranks",
           &f.tensor, {.range = {2, 4}, .shown = "none"})
      .add("columns", "N", "wrap text at this width", &f.columns, {.range = {1, 100000}})
      .add("json", "", "print JSON, which scripts/draw.py draws", &f.json);
  return {"", "Prints a pipeline schedule, a mesh, or what ZeRO and tensor parallelism do.", group};
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
  auto verb = verb_of(flags);
  std::vector<std::string> words(argv + 1, argv + argc);
  if (!parallel::parse("schedule", verb, words)) {
    std::fputs(help("schedule", verb, parallel::terminal_columns()).c_str(), stdout);
    return 0;
  }
  std::string text;
  if (flags.zero > 0) {
    text = json{{"zero", measure_zero(flags.zero)}}.dump(flags.json ? -1 : 2);
  } else if (flags.tensor > 0) {
    text = json{{"tensor", measure_tensor(flags.tensor)}}.dump(flags.json ? -1 : 2);
  } else if (!flags.mesh.empty()) {
    auto mesh = parallel::mesh_of(flags.mesh);
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
