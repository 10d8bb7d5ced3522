#include "parallel/program/checkpoint_verbs.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "core/check.h"
#include "core/files.h"
#include "parallel/checkpoint/directory.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/settings/bytes.h"
#include "parallel/settings/literals.h"
#include "parallel/settings/terminal.h"
#include "parallel/train/run_directory.h"

namespace triax::parallel {
namespace {

using Texts = std::map<std::string, std::string>;

void say(const std::string& text) { fmt::print("{}", folded(text)); }

uint64_t bytes_of(const StoredTensor& t) { return uint64_t(t.full.numel()) * size_of(t.dtype); }

std::string shown(uint64_t bytes) { return show_bytes(double(bytes)); }

/// One parameter, and the bytes of what belongs to it, such as the moments of AdamW.
struct Row {
  const StoredTensor* parameter = nullptr;
  uint64_t state = 0;
};

std::string table(const Manifest& m) {
  std::map<std::string, Row> rows;
  std::map<std::string, uint64_t> totals;  // of state, by kind
  int64_t parameters = 0;
  uint64_t weights = 0;
  for (auto& [name, tensor] : m.tensors) {
    size_t at = name.find('@');
    Row& row = rows[name.substr(0, at)];
    if (at == name.npos) {
      row.parameter = &tensor;
      parameters += tensor.full.numel();
      weights += bytes_of(tensor);
    } else {
      row.state += bytes_of(tensor);
      totals[name.substr(at + 1)] += bytes_of(tensor);
    }
  }
  size_t wide = std::string_view("shape").size();
  for (auto& [name, row] : rows)
    if (row.parameter) wide = std::max(wide, str(row.parameter->full).size());
  std::string text =
      fmt::format("{:>{}} dtype {:>9} {:>9}  parameter\n", "shape", wide, "bytes", "state");
  for (auto& [name, row] : rows) {
    const StoredTensor* t = row.parameter;
    text += fmt::format("{:>{}} {:>5} {:>9} {:>9}  {}\n", t ? str(t->full) : "-", wide,
                        t ? triax::name(t->dtype) : "-", t ? shown(bytes_of(*t)) : "-",
                        shown(row.state), printable(name));
  }
  text += fmt::format("{} parameters: weights {}", parameters, shown(weights));
  for (auto& [kind, bytes] : totals) text += fmt::format(", {} {}", printable(kind), shown(bytes));
  return text + "\n";
}

std::string value(const Texts& settings, const std::string& name) {
  auto found = settings.find(name);
  return found == settings.end() ? "?" : printable(without_quotes(found->second));
}

std::string heading(const std::string& path, const Manifest& m, const Texts& settings) {
  auto of = [&](const char* name) { return value(settings, name); };
  std::string text = fmt::format("checkpoint {}: step {}\n", path, m.step);
  text += fmt::format("written on a mesh of dp {} x pp {} x tp {}, ZeRO {}, schedule {}\n",
                      of("dp"), of("pp"), of("tp"), of("zero"), of("schedule"));
  uint64_t bytes = 0;
  for (auto& file : m.files) bytes += file.bytes;
  return text + fmt::format("{} tensors in {} file{}, {}\n", m.tensors.size(), m.files.size(),
                            m.files.size() == 1 ? "" : "s", shown(bytes));
}

/// All that is known beside tensors, but for what says it a second time.
Texts facts_of(const Manifest& m) {
  Texts all = saved_settings(m.state);
  for (auto& [name, text] : m.state)
    if (name != "settings" && name != "config") all["state: " + name] = text;
  all["step"] = std::to_string(m.step);
  return all;
}

/// A text of a tokenizer is long.
std::string brief(const std::string& text) {
  constexpr size_t most = 60;
  return text.size() <= most ? printable(text) : fmt::format("{} bytes", text.size());
}

size_t compare_facts(const Texts& a, const Texts& b) {
  Texts all = a;
  all.insert(b.begin(), b.end());
  size_t differ = 0;
  auto in = [](const Texts& texts, const std::string& name) {
    return texts.contains(name) ? brief(texts.at(name)) : std::string("not there");
  };
  for (const char* name : {"out", "metrics", "resume", "config", "deepspeed"})
    all.erase(name);  // where a run is, not what it is
  for (auto& [name, text] : all) {
    if (a.contains(name) && b.contains(name) && a.at(name) == b.at(name)) continue;
    if (differ++ == 0) fmt::print("settings that differ:\n");
    say(fmt::format("  {}: {} and {}\n", printable(name), in(a, name), in(b, name)));
  }
  return differ;
}

struct Gap {
  double absolute = 0, relative = 0;  ///< the largest of all elements
  int64_t elements = 0;               ///< that differ
};

void widen(Gap& all, const Tensor& a, const Tensor& b) {
  auto x = a.to(f64).to_host<double>(), y = b.to(f64).to_host<double>();
  for (size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    double apart = std::abs(x[i] - y[i]), share = apart / std::max(std::abs(x[i]), std::abs(y[i]));
    ++all.elements;
    all.absolute = std::max(all.absolute, std::isnan(apart) ? INFINITY : apart);
    all.relative = std::max(all.relative, std::isnan(share) ? INFINITY : share);
  }
}

/// Of contiguous tensors of one shape, in pieces: f64 needs more memory than what is stored.
Gap gap(const Tensor& a, const Tensor& b) {
  constexpr int64_t piece = 1 << 20;
  Tensor x = a.view({-1}), y = b.view({-1});
  Gap all;
  for (int64_t at = 0; at < x.numel(); at += piece) {
    int64_t n = std::min(piece, x.numel() - at);
    widen(all, x.narrow(0, at, n), y.narrow(0, at, n));
  }
  return all;
}

/// Why one tensor differs, empty if it does not.
std::string difference(Checkpoint& a, Checkpoint& b, const std::string& logical) {
  auto of = [&](Checkpoint& c) {
    auto found = c.manifest().tensors.find(logical);
    return found == c.manifest().tensors.end() ? nullptr : &found->second;
  };
  const StoredTensor *s = of(a), *t = of(b);
  if (!s || !t) return fmt::format("only in {}", (s ? a : b).path());
  if (s->dtype != t->dtype || s->full != t->full)
    return fmt::format("{} {} and {} {}", s->dtype, s->full, t->dtype, t->full);
  size_t at = logical.find('@');
  std::string name = logical.substr(0, at), kind = at == logical.npos ? "" : logical.substr(at + 1);
  Tensor x = a.read(name, {.full = s->full}, kind), y = b.read(name, {.full = s->full}, kind);
  if (x.numel() == 0 || std::memcmp(x.data(), y.data(), x.bytes()) == 0) return "";
  Gap g = gap(x, y);
  if (g.elements == 0) return "equal values in other bits (signs of zeros, kinds of NaN)";
  return fmt::format("{} of {} elements, by up to {:.3g}, relatively {:.3g}", g.elements, x.numel(),
                     g.absolute, g.relative);
}

size_t compare_tensors(Checkpoint& a, Checkpoint& b) {
  std::set<std::string> names;
  for (auto* c : {&a, &b})
    for (auto& [name, tensor] : c->manifest().tensors) names.insert(name);
  size_t differ = 0;
  for (auto& name : names) {
    std::string why = difference(a, b, name);
    if (why.empty()) continue;
    if (differ++ == 0) fmt::print("tensors that differ:\n");
    say(fmt::format("  {}: {}\n", printable(name), why));
  }
  return differ;
}

}  // namespace

Verb checkpoint_inspect_verb(CheckpointPaths& paths) {
  return {.name = "checkpoint inspect",
          .what = "Prints what a checkpoint holds: step, mesh, tensors, settings.",
          .settings = {},
          .operands = {{"DIR", &paths.a}}};
}

Verb checkpoint_verify_verb(CheckpointPaths& paths) {
  return {.name = "checkpoint verify",
          .what = "Reads a checkpoint and compares all checksums; exit code 65 if it is damaged.",
          .settings = {},
          .operands = {{"DIR", &paths.a}}};
}

Verb checkpoint_diff_verb(CheckpointPaths& paths) {
  return {.name = "checkpoint diff",
          .what = "Compares two checkpoints, of any meshes; exit code 0 if they are equal, else 1.",
          .settings = {},
          .operands = {{"A", &paths.a}, {"B", &paths.b}}};
}

Exit inspect_checkpoint(const CheckpointPaths& paths) {
  std::string path = newest_checkpoint(paths.a);
  Manifest m = read_manifest(path);
  Texts facts = facts_of(m);
  std::string text = heading(path, m, facts) + "\n" + table(m) + "\nsettings:\n";
  for (auto& [name, text_of] : facts)
    text += fmt::format("  {} = {}\n", printable(name), brief(text_of));
  say(text);
  return Exit::ok;
}

Exit verify_checkpoint(const CheckpointPaths& paths) {
  auto alone = single_rank();
  Checkpoint c = Checkpoint::open(newest_checkpoint(paths.a), *alone);
  say(heading(c.path(), c.manifest(), saved_settings(c.manifest().state)) +
      "every checksum is right\n");
  return Exit::ok;
}

Exit compare_checkpoints(const CheckpointPaths& paths) {
  auto alone = single_rank();
  Checkpoint a = Checkpoint::open(newest_checkpoint(paths.a), *alone),
             b = Checkpoint::open(newest_checkpoint(paths.b), *alone);
  size_t facts = compare_facts(facts_of(a.manifest()), facts_of(b.manifest()));
  size_t tensors = compare_tensors(a, b);
  if (facts + tensors == 0) {
    say(fmt::format("equal: {} tensors and all settings\n", a.manifest().tensors.size()));
    return Exit::ok;
  }
  say(fmt::format("{} settings and {} tensors differ\n", facts, tensors));
  return Exit::differs;
}

}  // namespace triax::parallel
