#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <span>

#include "core/check.h"
#include "examples/minigpt/plan.h"
#include "examples/minigpt/text_data.h"

namespace triax::minigpt {
namespace {

void print_head(const PlanConfig& c, const Plan& first) {
  const Hardware& h = hardware_named(c.hardware);
  const TrainConfig& t = first.config;
  fmt::print("model: {} layers, {} heads, width {}, context {}, vocabulary {}, {}\n",
             t.model.layers, t.model.heads, t.model.width, t.model.context, t.model.vocab,
             t.precision);
  int64_t ranks = t.mesh.dp * t.mesh.pp * t.mesh.tp;
  fmt::print(
      "{} rank{}, {} a node, of {}: {} memory, {:.3g} TFLOP/s at {:.0f} %, {:.2f} TB/s; {:.0f} "
      "GB/s "
      "in a node, {:.0f} between\n",
      ranks, ranks == 1 ? "" : "s", c.node, h.name, show_bytes(budget(c)),
      (t.precision == "fp32" ? h.fp32 : h.low) / 1e12, 100 * efficiency, h.bandwidth / 1e12,
      h.link / 1e9, h.network / 1e9);
}

/// What most of a rank's memory is taken by.
memory::Kind largest(const Demand& d) {
  auto end = d.peaks.begin() + memory::offloaded;  // the last kind, in no one's way
  return memory::Kind(std::max_element(d.peaks.begin(), end) - d.peaks.begin());
}

std::string verdict(const Plan& p, const PlanConfig& c) {
  double over = p.need(hardware_named(c.hardware)) - budget(c);
  if (over <= 0) return "fits";
  return fmt::format("too large by {}, mostly {}", show_bytes(over),
                     memory::name(largest(p.fullest())));
}

void print_rows(const PlanConfig& c, std::span<const Plan> all) {
  fmt::print("\n{:>12} {:>4} | {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} | {:>9} | {:>9} {:>5}\n",
             "dp x pp x tp", "ZeRO", "parameters", "gradients", "optimizer", "activations",
             "buffers", "offloaded", "peak", "ms a step", "idle");
  for (const Plan& p : all) {
    const MeshConfig& m = p.config.mesh;
    const Demand& d = p.fullest();
    auto kind = [&](memory::Kind k) { return show_bytes(double(d.peaks[k])); };
    fmt::print(
        "{:>12} {:>4} | {:>10} {:>10} {:>10} {:>11} {:>10} {:>10} | {:>9} | {:>9.4g} {:>4.0f}%  "
        "{}\n",
        fmt::format("{} x {} x {}", m.dp, m.pp, m.tp), m.zero, kind(memory::parameters),
        kind(memory::gradients), kind(memory::optimizer), kind(memory::activations),
        kind(memory::buffers), kind(memory::offloaded), show_bytes(double(d.peak)),
        1e3 * p.time.total(), 100 * p.time.idle / p.time.total(), verdict(p, c));
  }
}

void print_left_out(const std::vector<std::string>& refusals) {
  constexpr size_t most = 3;
  for (size_t i = 0; i < std::min(most, refusals.size()); ++i)
    fmt::print("left out: {}\n", refusals[i].substr(0, refusals[i].find('\n')));
  if (refusals.size() > most) fmt::print("left out: for {} more reasons\n", refusals.size() - most);
}

std::string advice(const Plan& p) {
  const char* cures[] = {"--recompute block, or a smaller --micro-batch",
                         "--zero 3, or more --pp or --tp", "--zero 2, or more --pp or --tp",
                         "--zero 1, or --offload", "a smaller --micro-batch"};
  memory::Kind kind = largest(p.fullest());
  return fmt::format("Most of it is {}: try {}.", memory::name(kind), cures[kind]);
}

/// Of this process.
double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double pages = 0;
  file >> pages >> pages;
  return pages * double(::sysconf(_SC_PAGESIZE));
}

/// Trains a step on a mesh of threads.
void check_against_run(const Plan& p) {
  std::fflush(stdout);
  double needed = 0, room = available_memory(), before = resident_bytes();
  const MeshConfig& m = p.config.mesh;
  for (const Demand& d : p.stages) needed += double(d.peak) * double(m.dp * m.tp);
  check_input(room == 0 || needed < 0.8 * room, Exit::config,
              "check: {} rank{} on this machine need {} of tensors; {} are free\n"
              "  Plan without --check, or check a smaller --width, --layers or mesh.",
              p.config.ranks, p.config.ranks == 1 ? "" : "s", show_bytes(needed), show_bytes(room));
  auto found = measure(p.config);
  fmt::print("\n{:>5}  {:>14} {:>14} {:>8}\n", "stage", "foreseen", "measured", "apart");
  double tensors = 0;
  for (size_t s = 0; s < found.size(); ++s) {
    tensors += double(found[s].peak) * double(m.dp * m.tp);
    fmt::print("{:>5}  {:>14} {:>14} {:>7.2f}%\n", s, p.stages[s].peak, found[s].peak,
               100 * (double(p.stages[s].peak) / double(found[s].peak) - 1));
  }
  fmt::print(
      "beside tensors ({} on all ranks): this process grew by {}, with libraries' own "
      "memory, stacks, and what the allocator keeps\n",
      show_bytes(tensors), show_bytes(resident_bytes() - before));
}

}  // namespace

Exit plan(const PlanConfig& given) {
  PlanConfig c = given;
  (void)budget(c);  // refuses what is no size
  TrainConfig& t = c.train;
  if (t.model.vocab == 0) {
    TrainConfig one = t;
    one.mesh = {};
    resolve(one, 1, "plan");
    t.model.vocab = vocabulary(0, Tokenizer::from_text(read_text(one.data), "data: " + one.data));
  }
  auto [all, refusals] = plans(c);
  print_head(c, all.front());
  print_rows(c, std::span(all).first(std::min(all.size(), size_t(c.top))));
  if (all.size() > size_t(c.top))
    fmt::print("and {} more: --top {}\n", all.size() - size_t(c.top), all.size());
  print_left_out(refusals);
  const Plan& best = all.front();
  double least = best.need(hardware_named(c.hardware));
  check_input(least <= budget(c), Exit::config,
              "plan: nothing fits in {}; the smallest needs {}\n  {}", show_bytes(budget(c)),
              show_bytes(least), advice(best));
  if (c.check) check_against_run(best);
  return Exit::ok;
}

}  // namespace triax::minigpt
