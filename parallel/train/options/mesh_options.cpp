#include <algorithm>
#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"
#include "triax/parallel/pipeline/partition.h"
#include "triax/parallel/pipeline/synthesis/schedule_file.h"
#include "triax/parallel/tensor/tensor_parallel.h"
#include "triax/parallel/train/options/option_groups.h"

namespace triax::parallel {
namespace {

void check_schedule_name(const StepOptions& o) {
  auto found = o.schedules.find(o.schedule);
  check_input(found != o.schedules.end(), Exit::config, "schedule `{}`; expected one of: {}",
              printable(o.schedule), join(names_of(o.schedules), ", "));
  check_input(bool(found->second.make), Exit::config,
              "schedule `{}`: an empty function; expected one that makes lists", o.schedule);
  Actions list = found->second(o.pipeline(), 0);  // it refuses chunks that it cannot have
  check_input(!o.graph || std::ranges::none_of(list, copies, &Action::kind), Exit::config,
              "graph with schedule={}, which offloads activations\n  The host waits for their "
              "copies. Leave --graph out, or take another schedule.",
              printable(o.schedule));
}

constexpr const char* mesh_heading = "Mesh";

Settings axis_settings(StepOptions& s) {
  MeshShape& m = s.mesh;
  SettingGroup group(mesh_heading, OnResume::free, {.plan = InPlan::sought});
  group
      .add("dp|data-parallel|data-parallel-size", "N", "data-parallel replicas", &m.dp,
           {.range = {0, huge},
            .shown = "what the other axes leave of the ranks started",
            .derived = true})
      .add("pp|pipeline-parallel|pipeline-parallel-size|pipeline-model-parallel-size", "N",
           "pipeline stages", &m.pp, {.range = {1, huge}})
      .add("tp|tensor-parallel|tensor-parallel-size|tensor-model-parallel-size", "N",
           "tensor-parallel ranks that split each layer", &m.tp, {.range = {1, huge}})
      .add("cp|context-parallel|context-parallel-size", "N",
           "context-parallel ranks that share the rows of each sample", &m.cp, {.range = {1, huge}})
      .add("ep|expert-parallel|expert-parallel-size|expert-model-parallel-size|ep-size", "N",
           "expert-parallel ranks: further replicas, which share the experts of each mixture",
           &m.ep, {.range = {1, huge}});
  for (auto& kind : s.axes) {
    SettingTraits traits{.range = {1, huge}};
    traits.parity = true;  // its --mesh has the axes of all programs
    group.add(kind->name, "N", kind->help, &m.size_of(kind->name), traits);
  }
  return group;
}

Settings way_settings(StepOptions& s) {
  auto names = names_of(s.schedules);
  return SettingGroup(mesh_heading, OnResume::free, {.plan = InPlan::sought, .parity = true})
      .add("sequence-parallel", "",
           "shard the rows outside of split layers over tp (sequence parallelism)",
           &s.sequence_parallel)
      .add(
          "zero|zero-stage", "0|1|2|3",
          "ZeRO stage: what dp, ep and cp shard; 1 optimizer state, 2 gradients too, 3 weights too",
          choice(s.zero, {{"0", Zero::off},
                          {"1", Zero::optimizer},
                          {"2", Zero::gradients},
                          {"3", Zero::parameters}}),
          {.deepspeed = "zero_optimization.stage"})
      .add("schedule", "NAME|FILE",
           fmt::format("pipeline schedule: {}, or a .json file of `schedule --search`",
                       join(names, ", ")),
           &s.schedule, {.choices = names, .or_file = ".json"})
      .add("chunks", "N", "model chunks on each stage", &s.chunks,
           {.range = {0, 1024}, .shown = "1, or 2 for schedules of several", .derived = true});
}

}  // namespace

Settings mesh_settings(StepOptions& s) {
  return SettingGroup(mesh_heading, OnResume::free, {.plan = InPlan::taken, .parity = true})
      .add(axis_settings(s))
      .add(way_settings(s))
      .add("cp-form|cp-comm-type", "ring|heads|gather",
           "attention over cp: keys pass round, rows are changed for heads, or keys are gathered",
           choice(s.cp_form, {{"ring", ContextForm::ring},
                              {"heads", ContextForm::heads},
                              {"gather", ContextForm::gather}}))
      .add("reduce-dtype", "fp32|bf16",
           "what gradients are sent in over dp, ep and cp; bf16: half the bytes, rounded "
           "before and after each sum",
           choice(s.reduce_dtype, {{"fp32", f32}, {"bf16", bf16}}),
           {.on_resume = OnResume::say, .deepspeed = "communication_data_type"})
      .add("bitwise", "",
           "the same bits of loss, weights and optimizer state on every mesh; on CPUs", &s.bitwise,
           {.on_resume = OnResume::ask})
      .add("tp-slices", "N",
           "with --bitwise: slices in which split layers are summed, on any mesh whose tp divides "
           "N",
           &s.tp_slices, {.range = {1, Slices::most}, .on_resume = OnResume::ask})
      .add("row-parts", "N",
           "with --bitwise: parts of a sample's rows that are summed one by one, on any mesh whose "
           "cp, twice, divides N",
           &s.row_parts, {.range = {1, 4096}, .on_resume = OnResume::ask})
      .add("tp-pieces", "N",
           "pieces of a split layer's rows: over tp one is sent while the next is computed",
           &s.tp_pieces, {.range = {1, 64}})
      .add("placement", "N,N,..",
           "layers (all, or those between first and last) on each stage and chunk", &s.placement,
           {.shown = "balanced by cost", .derived = true});
}

void StepOptions::add_axis(AxisKind kind) {
  for (const Axis& a : mesh.axes())
    check_input(a.name != kind.name, Exit::config, "axis {}: there is one; expected another name",
                kind.name);
  auto needs = [&](bool fine, const char* what) {
    check_input(fine, Exit::config, "axis {}: {}", kind.name, what);
  };
  bool data = any(kind.cuts, Cuts::samples | Cuts::rows), rows = any(kind.cuts, Cuts::rows);
  needs(!rows || (kind.share && kind.rows), "it cuts rows; expected share and rows");
  needs(!any(kind.cuts, Cuts::weights) || kind.around, "it cuts weights; expected around");
  needs(data || kind.zeros == AxisKind::Zeros::shard, "it replicates slices; expected samples");
  mesh.more.push_back({kind.name, kind.cuts, 1});
  axes.push_back(std::make_shared<AxisKind>(std::move(kind)));
}

std::shared_ptr<const AxisKind> StepOptions::own_rows() const {
  for (auto& kind : axes)
    if (any(kind->cuts, Cuts::rows) && mesh.size_of(kind->name) > 1) return kind;
  return nullptr;
}

AxisSet StepOptions::replicated() const {
  AxisSet names;
  for (auto& kind : axes)
    if (kind->zeros == AxisKind::Zeros::replicate) names.insert(kind->name);
  return names;
}

nn::Batch StepOptions::share(const nn::Batch& batch, int rank) const {
  auto own = own_rows();
  return own ? own->share(batch, mesh.size_of(own->name), rank)
             : rows_of_rank(batch, mesh.cp, rank);
}

void resolve_mesh(StepOptions& o, int64_t ranks) {
  if (o.mesh.dp == 0) o.mesh.dp = std::max(1, int(double(ranks) / o.mesh.least_size()));
  if (is_schedule_file(o.schedule) && !o.schedules.contains(o.schedule))
    o.schedules[o.schedule] = schedule_from(read_schedule(o.schedule), o.schedule);
  auto schedule = o.schedules.find(o.schedule);  // else check_mesh() refuses it
  if (o.chunks == 0) o.chunks = schedule == o.schedules.end() ? 1 : schedule->second.chunks;
}

// Refuses options whose sums have an order, or pieces, that depend on the mesh.
void check_bitwise(const TrainOptions& o) {
  const StepOptions& s = o.step;
  check_input(s.bitwise || s.tp_slices == 1, Exit::config,
              "tp-slices={} without bitwise\n  Slices cost time, for equal bits alone. Add "
              "--bitwise, or leave --tp-slices out.",
              s.tp_slices);
  check_input(s.bitwise || s.row_parts == 1, Exit::config,
              "row-parts={} without bitwise\n  Parts cost time, for equal bits alone. Add "
              "--bitwise, or leave --row-parts out.",
              s.row_parts);
  if (!s.bitwise) return;
  auto without = [](bool fine, const std::string& flag, const std::string& why) {
    check_input(fine, Exit::config, "bitwise with {}\n  {}. Leave --bitwise out, or change that.",
                flag, why);
  };
  without(s.tp_slices % s.mesh.tp == 0, fmt::format("tp={}, tp-slices={}", s.mesh.tp, s.tp_slices),
          fmt::format("Split layers are summed in slices, equally many on every rank: expected "
                      "--tp-slices N, a multiple\n  of each tp that is to have the same bits, such "
                      "as {}, the same N on all meshes",
                      s.mesh.tp));
  without(s.row_parts % (s.mesh.cp == 1 ? 1 : 2 * s.mesh.cp) == 0,
          fmt::format("cp={}, row-parts={}", s.mesh.cp, s.row_parts),
          fmt::format("Sums over rows are made in equal parts of a sample: expected --row-parts N, "
                      "a multiple of twice each cp that is\n  to have the same bits, such as {}, "
                      "the same N on all meshes",
                      2 * s.mesh.cp));
  without(s.mesh.cp == 1 || s.cp_form != ContextForm::ring, "cp-form=ring",
          "Parts of a softmax are joined in an order that depends on cp: expected --cp-form heads "
          "or gather, the same on\n  all meshes");
  without(!s.own_rows(), "rows on an axis of the program", "Their order of sums is its own");
  without(s.tp_pieces == 1, fmt::format("tp-pieces={}", s.tp_pieces),
          "A sum over rows would be made in pieces");
  without(s.reduce_dtype == f32, "reduce-dtype=bf16", "A rank's part of a gradient is rounded");
  without(o.launch.device == "cpu", fmt::format("device={}", o.launch.device),
          "GPUs have no fixed-point sums yet; expected --device cpu, for `plan` --hardware cpu");
  for (double scale : {s.loss_scale, s.dynamic_scale.initial, s.dynamic_scale.minimum})
    without(scale == 0 || std::exp2(std::round(std::log2(scale))) == scale,
            fmt::format("a loss scale of {}", scale),
            "Expected a power of two, which rounds nothing");
}

void check_mesh(const TrainOptions& o) {
  std::vector<std::string> of_rows;
  for (const Axis& a : o.step.mesh.axes())
    if (any(a.cuts, Cuts::rows) && a.size > 1) of_rows.push_back(a.name);
  check_input(of_rows.size() <= 1, Exit::config,
              "axes {} cut the rows of a sample; expected one\n  Take one of them.",
              join(of_rows, " and "));
  check_input(o.resume.empty() || o.step.mesh.ranks_along(Cuts::weights) == 1, Exit::config,
              "resume={} with ranks that train weights of their own: a checkpoint has the weights "
              "and the optimizer state of the first\n  Start from its weights: --init.",
              o.resume);
  check_bitwise(o);
  check_schedule_name(o.step);
}

Schedules built_in_schedules() {
  Schedules all;
  for (auto& name : schedule_names()) all[name] = schedule_named(name);
  return all;
}

std::vector<std::string> names_of(const Schedules& schedules) {
  return transformed(schedules, [](auto& named) { return named.first; });
}

std::map<std::string, std::string> schedule_content(const StepOptions& o) {
  if (!is_schedule_file(o.schedule)) return {};
  uint32_t sum = 0;
  for (const Actions& list : lists_of(o.schedules.at(o.schedule), o.pipeline()))
    for (const Action& a : list) {
      std::string text = label(a, o.chunks);
      sum = crc32c(text.data(), text.size() + 1, sum);
    }
  return {{"lists of the schedule", fmt::format("crc32c {:08x}", sum)}};
}

std::vector<int64_t> placement_of(const std::string& text, const PipelineShape& shape,
                                  int64_t layers) {
  int64_t sum = 0;
  for (size_t at = 0; at < text.size(); at = std::min(text.find(',', at), text.size() - 1) + 1)
    sum += std::clamp<int64_t>(std::atoll(text.c_str() + at), 0, layers);
  bool whole = sum == layers;  // else without the ends
  auto counts = parse_placement(text, shape, whole ? layers : layers - 2);
  if (!whole) ++counts.front(), ++counts.back();
  check_input(
      counts.front() > 0 && counts.back() > 0, Exit::config,
      "placement: {} leaves the {} stage without layers; expected one at least: it reads the "
      "batch, and the last makes the loss",
      text, counts.front() > 0 ? "last" : "first");
  return counts;
}

}  // namespace triax::parallel
