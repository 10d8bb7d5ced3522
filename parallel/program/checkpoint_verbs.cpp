#include <algorithm>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/settings/bytes.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

using Texts = std::map<std::string, std::string>;

uint64_t bytes_of(const StoredTensor& t) { return uint64_t(t.full.numel()) * size_of(t.dtype); }

std::string shown(uint64_t bytes) { return show_bytes(double(bytes)); }

/// One parameter, and the bytes of its state, such as the moments of AdamW.
struct Row {
  const StoredTensor* parameter = nullptr;
  uint64_t state = 0;
};

std::string table(const Manifest& m) {
  std::map<std::string, Row> rows;
  std::map<std::string, uint64_t> totals;  // bytes of state, by kind
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
  auto more = [&](const char* axis) {  // of those that not all checkpoints have
    std::string size = settings.contains(axis) ? of(axis) : "1";
    return size == "1" ? "" : fmt::format("{} {} x ", axis, size);
  };
  text +=
      fmt::format("written on a mesh of dp {} x pp {} x {}{}tp {}, ZeRO {}, schedule {}\n",
                  of("dp"), of("pp"), more("ep"), more("cp"), of("tp"), of("zero"), of("schedule"));
  uint64_t bytes = 0;
  for (auto& file : m.files) bytes += file.bytes;
  return text + fmt::format("{} tensors in {}, {}\n", m.tensors.size(),
                            counted(m.files.size(), "file"), shown(bytes));
}

/// Returns all facts beside tensors, each once.
Texts facts_of(const Manifest& m) {
  Texts all = saved_settings(m.state);
  for (auto& [name, text] : m.state)
    if (name != "settings" && name != "config") all["state: " + name] = text;
  all["step"] = std::to_string(m.step);
  return all;
}

/// Prints what the manifest says: step, mesh, tensors, settings. Throws Error 66 or 65 if there is
/// no checkpoint.
int inspect(const std::string& run) {
  std::string path = newest_checkpoint(run);
  Manifest m = read_manifest(path);
  Texts facts = facts_of(m);
  std::string text = heading(path, m, facts) + "\n" + table(m) + "\nsettings:\n";
  for (auto& [name, fact] : facts)  // a long one, such as a tokenizer, by its length
    text += fmt::format("  {} = {}\n", printable(name),
                        fact.size() <= 60 ? printable(fact) : fmt::format("{} bytes", fact.size()));
  print_folded(text);
  return int(Exit::ok);
}

/// Reads a whole checkpoint. Throws Error 65 naming the file and the tensor that is damaged.
int verify(const std::string& path) {
  auto alone = single_rank();
  Checkpoint c = Checkpoint::open(newest_checkpoint(path), *alone);
  print_folded(heading(c.path(), c.manifest(), saved_settings(c.manifest().state)) +
               "every checksum is right\n");
  return int(Exit::ok);
}

}  // namespace

std::vector<Verb> checkpoint_verbs() {
  auto path = std::make_shared<std::string>();
  return {{.name = "checkpoint inspect",
           .what = "Prints what a checkpoint holds: step, mesh, tensors, settings.",
           .operands = {{"DIR", path.get()}},
           .run = [path](auto&) { return inspect(*path); }},
          {.name = "checkpoint verify",
           .what = "Reads a checkpoint and compares all checksums; exit code 65 if it is damaged.",
           .operands = {{"DIR", path.get()}},
           .run = [path](auto&) { return verify(*path); }}};
}

}  // namespace triax::parallel
