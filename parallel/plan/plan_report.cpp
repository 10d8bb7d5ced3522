#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include "triax/core/check.h"
#include "triax/core/io/json.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/settings/terminal.h"

namespace triax::parallel {
namespace {

/// Returns `12.3 ms`, `1.2 s`.
std::string show_time(double seconds) {
  return seconds < 1 ? fmt::format("{:.3g} ms", 1e3 * seconds) : fmt::format("{:.3g} s", seconds);
}

std::string precision(DType dtype) {
  return dtype == f32 ? "fp32" : dtype == bf16 ? "bf16" : "fp16";
}

/// Returns a note if the global batch rules out the largest possible number of replicas.
std::string batch_that_limits(const StepOptions& asked, int64_t ranks) {
  MeshShape others = asked.mesh;
  others.dp = 1;
  int64_t replicas = ranks / int64_t(others.least_size()) * std::max(1, asked.mesh.ep);
  int64_t unit = replicas * std::max<int64_t>(1, asked.micro_batch);
  if (asked.mesh.dp > 0 || replicas == 0 || asked.global_batch % unit == 0) return "";
  return fmt::format(
      "{} samples a step are no multiple of {} ranks{}, which limits dp; --global-batch {} is "
      "one\n",
      asked.global_batch, replicas,
      unit == replicas ? "" : fmt::format(" x micro-batch {}", unit / replicas),
      (asked.global_batch / unit + 1) * unit);
}

/// Returns what --config fixes, and the time with that open.
std::string fixed_by_file(const Task& task, const PlanOptions& o) {
  PlanOptions open = o;
  auto names = transformed(o.configured, [](auto& s) { return s.substr(0, s.find(' ')); });
  auto by_file = [&](const std::string& name) { return std::ranges::count(names, name) > 0; };
  std::erase_if(open.given, by_file);
  leave_open(open.train.step, by_file);
  return fmt::format("fixed by --config: {}\n{} a step if the search may change that\n",
                     join(o.configured, ", "), show_time(plans(task, open).all[0].time.total()));
}

/// Prints the assumptions of the plan.
void print_head(const Task& task, const PlanOptions& o, const Plans& found) {
  const Hardware& h = found.hardware;
  const StepOptions& s = found.all.front().options.step;
  int64_t ranks = s.mesh.size();
  std::string text = task.description;
  const Elements& n = found.parameters;
  std::string trained = n.trained < n.all ? fmt::format(", {} of them trained", n.trained) : "";
  text += fmt::format("model: {}, {} parameters{}, {}; {} samples a step\n", found.layers, n.all,
                      trained, precision(s.dtype), s.global_batch);
  if (s.offload != Offloaded::nothing) text += "transfers of offloaded state are not timed\n";
  if (s.optimizer || s.algorithm != Algorithm::adamw) text += "updates are timed as AdamW's\n";
  text += fmt::format(
      "{} of {}, {} per node: {} for tensors{}; products at {:.3g} of {:.3g} TFLOP/s, "
      "memory {:.3g} of {:.3g} TB/s; {:.3g} GB/s within a node, {:.3g} GB/s a node to others\n",
      counted(ranks, "rank"), h.name, h.per_node, show_bytes(found.budget),
      o.memory.empty() ? fmt::format(", {} reserved", show_bytes(h.reserve)) : "",
      h.products * h.peak(s.dtype) / 1e12, h.peak(s.dtype) / 1e12, h.kernels * h.bandwidth / 1e12,
      h.bandwidth / 1e12, h.link_part * h.link / 1e9, h.network_part * h.network / 1e9);
  if (!o.configured.empty()) text += fixed_by_file(task, o);
  text += batch_that_limits(o.train.step, ranks);
  const Plan& best = found.all.front();
  text += fmt::format("{} ways timed, memory of {} rehearsed; the model's FLOP alone take {}",
                      found.candidates, found.all.size(),
                      show_time(best.mfu * best.time.total() / h.products));
  print_folded(text);
}

/// Returns the kind that takes most of a rank's memory.
memory::Kind largest(const Demand& d) {
  auto end = d.peaks.begin() + memory::offloaded;  // without the last kind, `offloaded`
  return memory::Kind(std::max_element(d.peaks.begin(), end) - d.peaks.begin());
}

/// Returns why a plan loses against the best, in a word: memory, or the part that takes most more.
std::string why(const Plan& p, const Plans& found) {
  if (!found.fits(p)) return "memory";
  const Plan& best = found.all.front();
  if (&p == &best) return "best";
  if (p.time.total() <= best.time.total()) return "tie";
  const std::pair<const char*, double StepTime::*> parts[] = {
      {"compute", &StepTime::compute},   {"tensor", &StepTime::tensor},
      {"handover", &StepTime::handover}, {"bubble", &StepTime::bubble},
      {"data", &StepTime::data},         {"update", &StepTime::update}};
  return std::ranges::max_element(
             parts, {}, [&](auto& part) { return p.time.*part.second - best.time.*part.second; })
      ->first;
}

std::string schedule_of(const StepOptions& s) {
  if (s.mesh.pp == 1) return "-";
  return s.chunks > 1 ? fmt::format("{} {}", s.schedule, s.chunks) : s.schedule;
}

/// A column of the table, from its heading down.
struct Column {
  std::vector<std::string> cells;
  int rank;  ///< the highest are left out first on a narrow terminal; 0: never

  size_t width() const { return std::ranges::max_element(cells, {}, &std::string::size)->size(); }
  /// True if it is the same in all of several rows.
  bool tells_nothing() const {
    return cells.size() > 2 &&
           std::count(cells.begin() + 1, cells.end(), cells[1]) + 1 == std::ssize(cells);
  }
};

std::vector<Column> columns_of(const Plans& found, std::span<const Plan> all) {
  auto used = [&](int MeshShape::*size) {
    return std::ranges::any_of(all, [&](auto& p) { return p.options.step.mesh.*size > 1; });
  };
  std::string experts = used(&MeshShape::ep) ? " x ep" : "",
              rows = used(&MeshShape::cp) ? " x cp" : "";
  std::vector<Column> columns;
  auto add = [&](const std::string& heading, int rank, auto cell) {
    Column& c = columns.emplace_back(Column{{heading}, rank});
    for (const Plan& p : all) c.cells.push_back(cell(p, p.options.step));
  };
  // Mesh, time, MFU and memory stay; then the columns that tell rows apart.
  add("dp x pp" + experts + rows + " x tp", 0, [&](auto&, auto& s) {
    return fmt::format("{} x {}{}{} x {}", s.mesh.dp, s.mesh.pp,
                       experts.empty() ? "" : fmt::format(" x {}", s.mesh.ep),
                       rows.empty() ? "" : fmt::format(" x {}", s.mesh.cp), s.mesh.tp);
  });
  add("ZeRO", 2, [](auto&, auto& s) { return std::to_string(int(s.zero)); });
  add("schedule", 1, [](auto&, auto& s) { return schedule_of(s); });
  add("micro", 1, [](auto&, auto& s) { return std::to_string(s.micro_batch); });
  add("recompute", 2, [](auto&, auto& s) { return name(s.recompute); });
  add("sp", 3, [](auto&, auto& s) { return s.sequence_parallel ? "yes" : "-"; });
  add("a step", 0, [](auto& p, auto&) { return show_time(p.time.total()); });
  add("MFU", 0, [](auto& p, auto&) { return fmt::format("{:.1f}%", 100 * p.mfu); });
  add("bubble", 6,
      [](auto& p, auto&) { return fmt::format("{:.0f}%", 100 * p.time.bubble / p.time.total()); });
  add("memory", 0, [&](auto& p, auto&) { return show_bytes(p.need(found.hardware)); });
  add("free", 5, [&](auto& p, auto&) {
    double bytes = found.budget - p.need(found.hardware);
    return bytes < 0 ? "-" + show_bytes(-bytes) : show_bytes(bytes);
  });
  add("why", 4, [&](auto& p, auto&) { return why(p, found); });
  return columns;
}

void print_rows(const Plans& found, std::span<const Plan> all) {
  auto columns = columns_of(found, all);
  auto wide = [&] {
    size_t sum = 0;
    for (auto& c : columns) sum += c.width() + 2;
    return sum > size_t(output_columns());
  };
  std::vector<std::string> left_out;
  constexpr int last = 6;
  for (bool any : {false, true})  // first those that are the same in all rows
    for (int rank = last; rank > 0 && wide(); --rank)
      std::erase_if(columns, [&](auto& c) {
        bool goes = c.rank == rank && (any || c.tells_nothing());
        if (goes) left_out.push_back(c.cells[0]);
        return goes;
      });
  for (size_t row = 0; row <= all.size(); ++row) {
    std::string line;
    for (auto& c : columns) line += fmt::format("{:>{}}", c.cells[row], c.width() + 2);
    fmt::print("{}{}\n", row == 0 ? "\n" : "", line);
  }
  if (!left_out.empty())
    print_folded(fmt::format("more columns on a wider terminal: {}", join(left_out, ", ")));
}

/// Returns the whole command that trains this.
std::string train_command(const PlanOptions& o, const Plan& p, const Hardware& h) {
  const StepOptions& s = p.options.step;
  const MeshShape& m = s.mesh;
  std::string text = o.command;
  auto told = [&](const char* name) { return std::ranges::count(o.given, name) > 0; };
  if (m.size() > 1 && o.train.launch.comm != "threads")
    text = fmt::format("mpirun -np {} {}", m.size(), text);
  if (!h.on_host() && o.train.launch.device == "cpu") text += " --device cuda";
  text += fmt::format(" {} --zero {}", flags(m), int(s.zero));
  if (m.pp > 1 || told("schedule"))
    text += fmt::format(" --schedule {} --chunks {}", shell_word(s.schedule), s.chunks);
  if (s.sequence_parallel) text += " --sequence-parallel";
  else if (told("sequence-parallel"))
    text += " --sequence-parallel false";  // a configuration file may turn it on
  text += fmt::format(" --recompute {} --micro-batch {} --global-batch {} --precision {}",
                      name(s.recompute), s.micro_batch, s.global_batch, precision(s.dtype));
  if (s.offload != Offloaded::nothing && !told("offload"))
    text += s.offload == Offloaded::optimizer ? " --offload optimizer" : " --offload params";
  // Lines break before a flag alone: values stay beside their flags, and may have quoted spaces.
  constexpr char joint = '\x1f';
  for (size_t at = 0; (at = text.find(' ', at)) != text.npos; ++at)
    if (text.compare(at, 3, " --") != 0) text[at] = joint;
  std::string lines = wrapped(text, output_columns() - 2, 4);
  std::ranges::replace(lines, joint, ' ');
  for (size_t at = 0; (at = lines.find('\n', at)) != lines.npos; at += 3) lines.insert(at, " \\");
  return lines;
}

/// Prints all refusals or, on a terminal, which has less room, a few.
void print_left_out(const std::vector<std::string>& refusals) {
  size_t most = ::isatty(STDOUT_FILENO) ? 3 : refusals.size();
  for (size_t i = 0; i < std::min(most, refusals.size()); ++i)
    fmt::print("{}\n", wrapped("left out: " + refusals[i].substr(0, refusals[i].find('\n')),
                               output_columns()));
  if (refusals.size() <= most) return;
  size_t more = refusals.size() - most;
  fmt::print("left out: for {}, which `| less` shows\n", counted(more, "more reason"));
}

/// Suggests what would make the largest part smaller, and is not done yet.
std::string advice(const Plan& p) {
  const StepOptions& s = p.options.step;
  memory::Kind kind = largest(p.fullest());
  constexpr int zero[memory::kinds] = {0, 3, 2, 1};  // the stage that shards it
  std::vector<std::string> cures;
  if (s.mesh.data() > 1 && int(s.zero) < zero[kind])
    cures.push_back(fmt::format("--zero {}", zero[kind]));
  if (kind == memory::optimizer && s.offload == Offloaded::nothing)
    cures.push_back("--offload optimizer");
  if (kind == memory::activations && s.recompute < Recompute::block)
    cures.push_back("--recompute block");
  if (kind == memory::activations && s.mesh.tp > 1 && !s.sequence_parallel &&
      s.recompute < Recompute::block_split)
    cures.push_back("--recompute block-split");
  if ((kind == memory::activations || kind == memory::buffers) && s.micro_batch > 1)
    cures.push_back("a smaller --micro-batch");
  cures.push_back("more ranks");
  return fmt::format("Most of it is {}: try {}.", memory::name(kind), join(cures, ", or "));
}

/// Returns the most memory that this process has had, in bytes.
double peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return 1024. * double(usage.ru_maxrss);
}

/// Trains a step on a mesh of threads and compares.
void check_against_run(const Task& task, const Plan& p) {
  std::fflush(stdout);
  const StepOptions& s = p.options.step;
  int ranks = s.mesh.size();
  double needed = 0, room = available_memory(), before = peak_resident_bytes(), tensors = 0;
  auto like = batch_like(task, s.micro_batch);
  auto predicted =
      foresee(task.build, like, s);  // on this machine's CPUs, whatever the plan is for
  for (const Demand& d : predicted) needed += double(d.peak) * double(s.mesh.stage());
  check_input(room == 0 || needed < 0.8 * room, Exit::config,
              "check: {} on this machine need {} of tensors; {} are free\n"
              "  Plan without --check, or check a smaller model or mesh.",
              counted(ranks, "rank"), show_bytes(needed), show_bytes(room));
  auto found = measure(task.build, like, s);
  fmt::print("\n{:>5}  {:>14} {:>14} {:>8}\n", "stage", "predicted", "measured", "apart");
  for (size_t i = 0; i < found.size(); ++i) {
    tensors += double(found[i].peak) * double(s.mesh.stage());
    fmt::print("{:>5}  {:>14} {:>14} {:>7.2f}%\n", i, predicted[i].peak, found[i].peak,
               100 * (double(predicted[i].peak) / double(found[i].peak) - 1));
  }
  fmt::print(
      "tensors of all ranks: {}; the process grew by {}, with libraries' own memory,\n"
      "stacks, and what the allocator keeps\n",
      show_bytes(tensors), show_bytes(peak_resident_bytes() - before));
}

}  // namespace

std::vector<std::string> plans_json(const Task& task, const Plans& found) {
  double weight = task.samples->weight(0);
  return transformed(found.all, [&](const Plan& p) {
    const StepOptions& s = p.options.step;
    double seconds = p.time.total();
    return fmt::format(
        R"({{"dp": {}, "pp": {}, "cp": {}, "ep": {}, "tp": {}, "zero": {}, "schedule": {}, )"
        R"("chunks": {}, "micro_batch": {}, "global_batch": {}, "recompute": "{}", )"
        R"("sequence_parallel": {}, "memory_bytes": {:.0f}, "step_seconds": {}, )"
        R"("tokens_per_second": {}, "mfu": {}, "fits": {}}})",
        s.mesh.dp, s.mesh.pp, s.mesh.cp, s.mesh.ep, s.mesh.tp, int(s.zero), nn::quoted(s.schedule),
        s.chunks, s.micro_batch, s.global_batch, name(s.recompute), s.sequence_parallel,
        p.need(found.hardware), seconds, double(s.global_batch) * weight / seconds, p.mfu,
        found.fits(p));
  });
}

Plans plan(const Task& task, const PlanOptions& o) {
  check_input(!o.json || !o.check, Exit::usage,
              "plan: --json with --check; expected one of them: --check prints no JSON");
  Plans found = plans(task, o);
  const Hardware& h = found.hardware;
  const Plan& best = found.all.front();
  double least = best.need(h);
  if (o.json) {
    fmt::print("{}\n", join(plans_json(task, found), "\n"));
  } else {
    print_head(task, o, found);
    print_rows(found, std::span(found.all).first(std::min(found.all.size(), size_t(o.top))));
    if (found.all.size() > size_t(o.top))
      fmt::print("and {} more: --top {}\n", found.all.size() - size_t(o.top), found.all.size());
    print_left_out(found.refusals);
  }
  check_input(least <= found.budget, Exit::config,
              "plan: nothing fits in {}; the smallest of {} that were rehearsed needs {}\n  {}",
              show_bytes(found.budget), found.all.size(), show_bytes(least), advice(best));
  if (!o.json) fmt::print("\n{}\n", train_command(o, best, h));
  if (o.check) check_against_run(task, best);
  return found;
}

}  // namespace triax::parallel
