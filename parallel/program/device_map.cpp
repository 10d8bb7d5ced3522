#include "triax/parallel/program/device_map.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/plan/rehearsal.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/train/step/replica.h"

namespace triax::parallel {
namespace {

using To = optim::Offload::To;
constexpr int in_memory = -1, on_disk = -2;  // places that are no GPU
using Places = std::vector<int>;             // places of the layers, in order

/// The places, and the layers that each GPU computes; one count without GPUs.
struct Map {
  Places places;
  std::vector<int64_t> counts;
};

using Names = std::vector<std::string>;
Names layers_of(const Task& task) {
  MetaComm alone(1, 0);
  return transformed(model_of(task.build, TensorParallel(alone))->layers(), &nn::Layer::name);
}

std::string name_of(int place) {
  return place == in_memory ? "cpu" : place == on_disk ? "disk" : fmt::format("cuda:{}", place);
}

int place_in(const nn::JsonReader& value) {
  if (!value.is_text()) return int(value.number(1 << 16));
  std::string text = value.text();
  if (text == "cpu") return in_memory;
  if (text == "disk") return on_disk;
  Device device = cpu;
  try {
    device = device_named(text);
  } catch (const Error&) {
  }
  value.require(
      device.kind == Device::Kind::cuda && device.index >= 0,
      fmt::format("is `{}`; expected the number of a GPU, cuda:0, cpu or disk", printable(text)));
  return device.index;
}

Places read_map(const std::string& path, const Names& layers) {
  auto given =
      nn::JsonReader(disk().read(path, 1 << 20), "device map " + path, "the map", 1).members();
  Places places;
  Names missing;
  for (auto& layer : layers) {
    auto found = given.contains(layer) ? given.find(layer) : given.find("");
    if (found == given.end()) missing.push_back(layer);
    else places.push_back(place_in(found->second));
  }
  for (auto& [name, place] : given)
    check_input(name.empty() || std::ranges::count(layers, name) > 0, Exit::config,
                "device map {}: there is no layer `{}`{}\n  Layers: {}.", path, printable(name),
                hint(name, layers, "`{}`"), join(layers, ", "));
  check_input(missing.empty(), Exit::config,
              "device map {}: no place for layer {}\n  Every layer needs one; \"\" stands for all "
              "that are not named.",
              path, join(missing, ", "));
  return places;
}

/// Returns the bytes this process may still allocate by its limits (ulimit -d, -v) and the machine.
double free_memory() {
  double room = available_memory(), kind[7] = {};
  std::ifstream file("/proc/self/statm");  // pages: size, resident, shared, text, 0, data, 0
  for (double& pages : kind) file >> pages;
  auto below = [&](auto resource, double pages) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
    double taken = pages * double(::sysconf(_SC_PAGESIZE));
    room = std::min(room, std::max(0., double(limit.rlim_cur) - taken));
  };
  below(RLIMIT_AS, kind[0]);
  below(RLIMIT_DATA, kind[5]);
  return room;
}

/// Returns the bytes of free memory that tensors may take: allocators keep blocks and round sizes
/// up, threads have stacks.
double for_tensors(double room) { return std::max(0., 0.8 * room - (32 << 20)); }

/// Returns the fewest layers of each stage, its last ones, that have to go to `to` for the stages
/// to fit into `rooms`: to the host what GPUs have no room for, to files what it has not.
std::vector<int64_t> least_offloaded(const Task& task, const StepOptions& o, To to,
                                     const std::vector<int64_t>& counts,
                                     const std::vector<double>& rooms) {
  Names names = layers_of(task);
  auto like = batch_like(task, o.micro_batch);
  std::vector<int64_t> least(counts.size(), 0), most(counts), tried(counts);
  auto all_tried = [&] {
    StepOptions with = o;
    size_t layer = 0;
    for (size_t s = 0; s < counts.size(); ++s)
      for (int64_t i = 0; i < counts[s]; ++i, ++layer)
        if (i >= counts[s] - tried[s]) with.places[names[layer]] = to;
    return foresee(task.build, like, with, to == To::host ? Device::Kind::cuda : Device::Kind::cpu);
  };
  for (bool first = true; first || least != most; first = false) {  // first with all of them
    auto demands = all_tried();
    for (size_t s = 0; s < counts.size(); ++s) {
      double takes = double(demands[s].peak), room = for_tensors(rooms[s]);
      check_input(!first || takes <= room, Exit::memory,
                  "device map: with all layers elsewhere a step still takes {} of {} for tensors\n"
                  "  Try a smaller --micro-batch, --recompute block, or more memory.",
                  show_bytes(takes), show_bytes(room));
      if (takes <= room) most[s] = tried[s];
      else least[s] = tried[s] + 1;
      tried[s] = (least[s] + most[s]) / 2;
    }
  }
  return least;
}

/// Moves the last layers on the host that its memory has no room for to files.
void spill(Places& places, const Task& task, const StepOptions& o) {
  MetaComm alone(1, 0);
  auto model = model_of(task.build, TensorParallel(alone));
  double room = for_tensors(free_memory());
  double bytes = double(size_of(o.dtype)) + 12 + (o.dtype == f32 ? 0 : 4);  // of one parameter
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] != in_memory) continue;
    for (auto* m : model->layers()[i].uses)
      for (auto* p : m->parameters()) room -= bytes * double(p->full.numel());
    if (room < 0) places[i] = on_disk;
  }
}

Map measured_map(const Task& task, const TrainOptions& given, int gpus) {
  TrainOptions o = given;
  Names names = layers_of(task);
  int stages = std::clamp(gpus, 1, int(names.size()));
  o.step.mesh = o.step.mesh.ones(), o.step.mesh.pp = stages;
  o.step.zero = Zero::parameters;
  resolve(o, stages);
  o.step.graph = false;  // whether it can be is known when the layers have places
  check_options(o, stages);
  std::vector<double> rooms;
  for (int s = 0; s < stages; ++s)
    rooms.push_back(gpus > 0 ? double(gpu_memory(s)) : free_memory());
  auto like = batch_like(task, o.step.micro_batch);
  auto counts = place(probe(task.build, like, probe_options(o.step)), o.step);
  auto offloaded = least_offloaded(task, o.step, gpus > 0 ? To::host : To::file, counts, rooms);
  Places places;
  for (int s = 0; s < stages; ++s) {
    auto away = offloaded[size_t(s)];
    places.insert(places.end(), size_t(counts[size_t(s)] - away), gpus > 0 ? s : in_memory);
    places.insert(places.end(), size_t(away), gpus > 0 ? in_memory : on_disk);
  }
  if (gpus > 0) spill(places, task, o.step);
  return {places, counts};
}

std::vector<int64_t> stages_of(const Places& places) {
  int gpus = 1 + std::max(in_memory, *std::ranges::max_element(places));
  check_input(gpus <= gpu_count(), Exit::config,
              "device map: a layer is on GPU {}; this process sees {}", gpus - 1,
              gpu_count() == 0   ? "none"
              : gpu_count() == 1 ? "GPU 0"
                                 : fmt::format("GPUs 0 to {}", gpu_count() - 1));
  std::vector<int64_t> counts(size_t(std::max(1, gpus)), 0);
  int stage = 0;
  for (int place : places) {
    if (place >= 0) {
      check_input(
          place == stage || (place == stage + 1 && counts[size_t(stage)] > 0), Exit::config,
          "device map: layers on GPU {} follow those on GPU {}; expected GPUs from 0 in the "
          "order of the layers, each with neighbouring ones",
          place, stage);
      stage = place;
    }
    ++counts[size_t(stage)];
  }
  return counts;
}

/// Checks that flags do not set what a map sets.
void check_alone(const TrainOptions& o) {
  const MeshShape& m = o.step.mesh;
  bool alone = m.least_size() <= 1 && o.launch.ranks == 0 && o.step.placement.empty() &&
               o.step.offload == Offloaded::nothing;
  check_input(
      alone, Exit::config,
      "device-map with --dp, --pp, --ep, --cp, --tp, --ranks, --placement or --offload\n  The map "
      "places the layers of one process. Leave the others, or --device-map, out.");
  const std::string& comm = o.launch.comm;
  check_input(comm == "auto" || comm == "threads", Exit::config,
              "device-map with comm={}\n  The GPUs are of one process. Leave --comm out.", comm);
  check_input(o.step.zero == Zero::off || o.step.zero == Zero::parameters, Exit::config,
              "device-map with zero={}\n  There is one replica, which ZeRO shares nothing with; "
              "layers elsewhere are as with --zero 3. Leave --zero out.",
              int(o.step.zero));
  const std::string& schedule = o.step.schedule;
  auto found = o.step.schedules.find(schedule);
  bool one = found == o.step.schedules.end() || found->second.chunks == 1;
  check_input(o.step.chunks <= 1 && one, Exit::config,
              "device-map with chunks={}, schedule={}\n  Each GPU has one chunk of neighbouring "
              "layers. Valid: a schedule of one, such as 1f1b.",
              o.step.chunks, schedule);
  check_input(o.launch.device == "cpu" || o.launch.device == "cuda", Exit::config,
              "device-map with device={}\n  A map counts all GPUs from 0. Valid: --device cuda, or "
              "cpu for none; CUDA_VISIBLE_DEVICES hides GPUs.",
              o.launch.device);
}

std::string describe(const Places& places, const Names& names) {
  std::string text = "device map:";
  for (size_t i = 0; i < places.size(); ++i) {
    bool goes_on = i > 0 && places[i] == places[i - 1];
    text += goes_on ? " " + names[i] : fmt::format("\n  {:<7} {}", name_of(places[i]), names[i]);
  }
  return text + "\n";
}

}  // namespace

std::string apply_device_map(const std::string& what, const Task& task, TrainOptions& o) {
  check_task(task);
  check_alone(o);
  Names names = layers_of(task);
  bool on_gpu = o.launch.device != "cpu";
  auto given = [&] {
    Places read = read_map(what, names);
    return Map{read, stages_of(read)};
  };
  auto [places, counts] =
      what == "auto" ? measured_map(task, o, on_gpu ? std::max(1, gpu_count()) : 0) : given();
  on_gpu = on_gpu || *std::ranges::max_element(places) >= 0;
  bool away = false;
  for (size_t i = 0; i < names.size(); ++i) {
    bool host = places[i] == in_memory && on_gpu, file = places[i] == on_disk;
    if (host || file) o.step.places[names[i]] = file ? To::file : To::host;
    away = away || host || file;
    check_input(!file || !o.step.offload_dir.empty(), Exit::config,
                "device map: layer {} is on disk\n  Add --offload-dir DIR, for its files.",
                names[i]);
  }
  if (away) o.step.zero = Zero::parameters;
  if (on_gpu) o.launch.device = "cuda";
  if (counts.size() > 1) {
    o.launch.comm = "threads", o.launch.ranks = int(counts.size());
    o.step.mesh.pp = int(counts.size());
    o.step.placement = join(counts, ",");
  }
  return describe(places, names);
}

}  // namespace triax::parallel
