#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <span>

#include "core/check.h"
#include "parallel/plan/plan.h"
#include "parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

std::string precision(DType dtype) {
  return dtype == f32 ? "fp32" : dtype == bf16 ? "bf16" : "fp16";
}

void print_head(const Task& task, const PlanOptions& o, const Plan& first) {
  const Hardware& h = hardware_named(o.hardware);
  const StepOptions& s = first.options.step;
  int64_t parameters = 0, ranks = s.mesh.size();
  size_t layers = 0;
  for (auto& d : first.stages) parameters += d.parameters, layers += d.layers.size();
  std::string text = task.description;
  text += fmt::format("model: {} layers, {} parameters, {}; {} samples a step\n", layers,
                      parameters, precision(s.dtype), s.global_batch);
  text += fmt::format(
      "{} rank{}, {} per node, of {}: {} memory, {:.3g} TFLOP/s at {:.0f} %, {:.2f} "
      "TB/s; {:.0f} GB/s within a node, {:.0f} GB/s between nodes",
      ranks, ranks == 1 ? "" : "s", o.per_node, h.name, show_bytes(budget(o)),
      (s.dtype == f32 ? h.fp32 : h.low) / 1e12, 100 * efficiency, h.bandwidth / 1e12, h.link / 1e9,
      h.network / 1e9);
  std::fputs(folded(text, terminal_columns()).c_str(), stdout);
}

/// What most of a rank's memory is taken by.
memory::Kind largest(const Demand& d) {
  auto end = d.peaks.begin() + memory::offloaded;  // the last kind, in no one's way
  return memory::Kind(std::max_element(d.peaks.begin(), end) - d.peaks.begin());
}

/// At most 14 columns, or 32 if there is room.
std::string verdict(const Plan& p, const PlanOptions& o) {
  bool room = terminal_columns() >= 80;
  double over = p.need(hardware_named(o.hardware)) - budget(o);
  if (over <= 0) return fmt::format("{}{} free", room ? "fits, " : "", show_bytes(-over));
  std::string most = memory::name(largest(p.fullest()));
  return fmt::format("{} over{}", show_bytes(over), room ? ", mostly " + most : "");
}

/// `12.3 ms`, `1.2 s`.
std::string show_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

/// A table whose columns of memory by kind are those that a terminal has room for and that are not
/// zero in all rows.
void print_rows(const PlanOptions& o, std::span<const Plan> all) {
  std::vector<memory::Kind> kinds;
  int room = terminal_columns() - 78;
  for (int k = 0; k < memory::kinds; ++k) {
    bool used = std::any_of(all.begin(), all.end(),
                            [&](auto& p) { return p.fullest().peaks[size_t(k)] > 0; });
    if (used && (room -= 12) >= 0) kinds.push_back(memory::Kind(k));
  }
  std::string head = fmt::format("\n{:>12} {:>4} {:>9} {:>9} {:>5}", "dp x pp x tp", "ZeRO",
                                 "a step", "peak", "idle");
  for (auto k : kinds) head += fmt::format(" {:>11}", memory::name(k));
  fmt::print("{}\n", head);
  for (const Plan& p : all) {
    const StepOptions& s = p.options.step;
    const Demand& d = p.fullest();
    std::string row = fmt::format("{:>12} {:>4} {:>9} {:>9} {:>4.0f}%",
                                  fmt::format("{} x {} x {}", s.mesh.dp, s.mesh.pp, s.mesh.tp),
                                  int(s.zero), show_time(p.time.total()),
                                  show_bytes(double(d.peak)), 100 * p.time.idle / p.time.total());
    for (auto k : kinds) row += fmt::format(" {:>11}", show_bytes(double(d.peaks[size_t(k)])));
    fmt::print("{}  {}\n", row, verdict(p, o));
  }
}

void print_left_out(const std::vector<std::string>& refusals) {
  constexpr size_t most = 3;
  for (size_t i = 0; i < std::min(most, refusals.size()); ++i)
    fmt::print("{}\n", wrapped("left out: " + refusals[i].substr(0, refusals[i].find('\n')),
                               terminal_columns()));
  if (refusals.size() <= most) return;
  size_t more = refusals.size() - most;
  fmt::print("left out: for {} more reason{}\n", more, more == 1 ? "" : "s");
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
void check_against_run(const Task& task, const Plan& p) {
  std::fflush(stdout);
  const StepOptions& s = p.options.step;
  int ranks = s.mesh.size();
  double needed = 0, room = available_memory(), before = resident_bytes(), tensors = 0;
  auto like = batch_like(task, s.micro_batch);
  auto predicted =
      foresee(task.build, like, s);  // of this machine's CPUs, whatever the plan is for
  for (const Demand& d : predicted) needed += double(d.peak) * double(s.mesh.dp * s.mesh.tp);
  check_input(room == 0 || needed < 0.8 * room, Exit::config,
              "check: {} rank{} on this machine need {} of tensors; {} are free\n"
              "  Plan without --check, or check a smaller model or mesh.",
              ranks, ranks == 1 ? "" : "s", show_bytes(needed), show_bytes(room));
  auto found = measure(task.build, like, s);
  fmt::print("\n{:>5}  {:>14} {:>14} {:>8}\n", "stage", "predicted", "measured", "apart");
  for (size_t i = 0; i < found.size(); ++i) {
    tensors += double(found[i].peak) * double(s.mesh.dp * s.mesh.tp);
    fmt::print("{:>5}  {:>14} {:>14} {:>7.2f}%\n", i, predicted[i].peak, found[i].peak,
               100 * (double(predicted[i].peak) / double(found[i].peak) - 1));
  }
  fmt::print(
      "tensors of all ranks: {}; the process grew by {}, with libraries' own memory,\n"
      "stacks, and what the allocator keeps\n",
      show_bytes(tensors), show_bytes(resident_bytes() - before));
}

}  // namespace

Exit plan(const Task& task, const PlanOptions& o) {
  (void)budget(o);  // refuses what is no size
  auto [all, refusals] = plans(task, o);
  print_head(task, o, all.front());
  print_rows(o, std::span(all).first(std::min(all.size(), size_t(o.top))));
  if (all.size() > size_t(o.top))
    fmt::print("and {} more: --top {}\n", all.size() - size_t(o.top), all.size());
  print_left_out(refusals);
  const Plan& best = all.front();
  double least = best.need(hardware_named(o.hardware));
  check_input(least <= budget(o), Exit::config,
              "plan: nothing fits in {}; the smallest needs {}\n  {}", show_bytes(budget(o)),
              show_bytes(least), advice(best));
  if (o.check) check_against_run(task, best);
  return Exit::ok;
}

}  // namespace triax::parallel
