#include "triax/parallel/plan/hardware.h"

#include <strings.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/bytes.h"

namespace triax::parallel {
namespace {

Hardware read(const std::string& name, const std::string& text, const std::string& path) {
  Hardware h{.name = name};
  Settings keys = hardware_settings(h);
  auto given = read_config_text(keys, text, path);
  for (const Setting& key : keys)
    check_input(std::ranges::count(given, key.name) > 0, Exit::config,
                "{}: no `{}`: {}; expected {}\n  `minigpt calibrate --out FILE` writes a whole "
                "file.",
                path, key.name, key.help, expected(key));
  check_input(h.reserve == 0 || h.reserve >= 1e6, Exit::config,
              "{}: reserve={}; expected 0, or at least 1 MB", path, show_bytes(h.reserve));
  check_input(h.reserve < h.memory, Exit::config,
              "{}: reserve={} of memory={}; expected less: tensors need the rest", path,
              show_bytes(h.reserve), show_bytes(h.memory));
  return h;
}

}  // namespace

Settings hardware_settings(Hardware& h) {
  // Values outside of these are meant in GB, GB/s, TFLOP/s or microseconds.
  const SettingTraits large{.range = {.min = 1e6}}, start{.range = {.max = 0.01}};
  const SettingTraits bytes{.range = {1e6, 1e15}};
  const SettingTraits part{.range = {.min = 0, .max = 1, .open_min = true}};
  return SettingGroup("Hardware")
      .add("device", "cpu|cuda", "where tensors live", &h.device, {.choices = {"cpu", "cuda"}})
      .add("memory", "BYTES", "memory of a rank", &h.memory, bytes)
      .add("reserve", "BYTES", "what of it contexts, libraries and fragments take", &h.reserve)
      .add("fp32", "FLOP/S", "peak of products in fp32, which use no TF32", &h.fp32, large)
      .add("bf16", "FLOP/S", "peak of products in bf16 and fp16", &h.low, large)
      .add("products", "PART", "part of the peak that products reach", &h.products, part)
      .add("attention", "PART", "part of the peak that attention reaches", &h.attention, part)
      .add("bandwidth", "BYTES/S", "peak of the memory", &h.bandwidth, large)
      .add("kernels", "PART", "part of it that all other kernels reach", &h.kernels, part)
      .add("update", "PART", "part of it that AdamW reaches", &h.update, part)
      .add("kernel-start", "SECONDS", "start and end of a kernel on the device", &h.kernel_start,
           start)
      .add("launch", "SECONDS", "host's time for an op; forward and backward take at least that",
           &h.launch, start)
      .add("link", "BYTES/S", "of a rank and direction to ranks of its node", &h.link, large)
      .add("link-part", "PART", "part of it that collectives reach", &h.link_part, part)
      .add("network", "BYTES/S", "of all network cards of a node, in one direction", &h.network,
           large)
      .add("network-part", "PART", "part of it that collectives reach", &h.network_part, part)
      .add("latency", "SECONDS", "of a collective, however small", &h.latency,
           {.range = {.max = 1}})
      .add("ranks-per-node", "N", "ranks (GPUs) of a node", &h.per_node, {.range = {1, 65536}});
}

double Hardware::seconds(const KernelWork& counted, DType dtype) const {
  KernelWork work = on_host() ? counted : counted.on_gpu();
  double core = work.attention, others = work.products - core;
  return others / (products * peak(dtype)) + core / (attention * peak(dtype)) +
         double(work.kernels + work.matmuls) * kernel_start + work.bytes / kernels / bandwidth;
}

double Hardware::launches(const KernelWork& counted) const {
  KernelWork work = on_host() ? counted : counted.on_gpu();
  return double(work.kernels + work.matmuls) * launch;
}

double Hardware::seconds(const Ledger::Line& line, int64_t ranks, int64_t stride) const {
  if (ranks <= 1 || line.calls == 0) return 0;
  double inside = double(std::clamp<int64_t>(per_node / stride, 1, ranks));
  double nodes = std::ceil(double(ranks) / inside);
  double fewest = double(ranks) - (nodes - 1) * inside;  // on the node that has the fewest of them
  double whole = line.bytes * double(ranks) / double(ranks - 1);  // as if every byte left
  double within = (inside - 1) / inside * whole / (link_part * link);
  double cards = network_part * network * fewest / double(per_node);
  double between = (nodes - 1) / nodes * whole / cards;
  return double(line.calls) * latency + std::max(within, between);
}

double Hardware::message(double bytes, int64_t stride) const {
  double rate = stride >= per_node ? network_part * network / double(per_node) : link_part * link;
  return latency + bytes / rate;
}

bool Hardware::overlaps(int64_t ranks, int64_t stride) const {
  return !on_host() || (ranks > 1 && ranks * stride > per_node);
}

double with_host(double device, double host) {
  return device > 0 ? host + device * std::exp(-host / device) : host;
}

std::vector<std::string> hardware_names() {
  return transformed(shipped_hardware(), [](auto& named) { return named.first; });
}

Hardware hardware_named(const std::string& name) {
  auto& shipped = shipped_hardware();
  if (auto found = shipped.find(name); found != shipped.end())
    return read(name, found->second, "hardware " + name);
  bool is_file = name.find('/') != name.npos || name.ends_with(".toml");
  check_input(std::filesystem::exists(name), is_file ? Exit::not_found : Exit::config,
              "hardware `{}`: {}\n  Valid: {}, or a file that `calibrate` wrote.", printable(name),
              is_file ? "there is no such file" : "not a known name or file",
              join(hardware_names(), ", "));
  return read(std::filesystem::path(name).stem().string(), disk().read(name, 1 << 20), name);
}

}  // namespace triax::parallel
