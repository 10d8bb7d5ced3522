#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <thread>

#include "examples/hugging_face/conversion.h"
#include "examples/hugging_face/stream.h"
#include "examples/hugging_face/tokenizer_files.h"
#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/parallel/checkpoint/directory.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::hf {
namespace {

using Rules = std::vector<Rule>;

void check_tensor(const Weights& weights, const Part& part, const std::string& missing) {
  auto found = weights.find(part.name);
  check_input(found != weights.end(), Exit::data, "{}", missing);
  const Stored& stored = found->second;
  check_input(stored.shape == part.shape, Exit::data, "{}: tensor {} is {}; expected {}",
              stored.file, part.name, stored.shape, part.shape);
  check_input(stored.dtype == f32 || stored.dtype == f16 || stored.dtype == bf16, Exit::data,
              "{}: tensor {} is {}; expected f32, f16 or bf16", stored.file, part.name,
              stored.dtype);
}

void rename(Weights& weights, const std::string& from, const std::string& to) {
  auto found = weights.extract(from);
  if (found.empty()) return;
  found.key() = to;
  weights.insert(std::move(found));
}

/// Gives tensors the names that rules have: of a base model's without its head those lack `base`,
/// and a tied weight may be stored under its other name alone.
void take_other_names(const Architecture& a, Weights& weights, const Rules& rules) {
  for (const Rule& rule : rules)
    for (const Part& part : rule.parts) {
      if (!a.base.empty() && part.name.starts_with(a.base) && !weights.contains(part.name))
        rename(weights, part.name.substr(a.base.size()), part.name);
      if (!weights.contains(part.name)) rename(weights, rule.copy, part.name);
    }
}

/// Returns the error for a missing tensor, with the cure where the model was saved without its
/// head.
std::string missing(const Rule& rule, const Part& part, const std::string& path) {
  std::string text = fmt::format("{}: tensor {} {} is missing", path, part.name, part.shape);
  if (!rule.copy.empty()) text += fmt::format(", and so is {}, to which it is tied", rule.copy);
  bool head = !rule.copy.empty() || part.name == "lm_head.weight";
  return text + (head ? "\n  Save the model again in Python, with its language-model head: "
                        "save_pretrained(DIR) of AutoModelForCausalLM."
                      : "");
}

/// Checks that both copies of a tied weight are equal: there is one place for it.
void check_copy(const Weights& weights, const Rule& rule) {
  const std::string &name = rule.copy, &other = rule.parts[0].name;
  auto found = weights.find(name);
  if (found == weights.end()) return;
  const Stored &copy = found->second, &original = weights.at(other);
  bool alike = copy.dtype == original.dtype && copy.shape == original.shape;
  if (alike) {
    Tensor a = copy.read(), b = original.read();
    alike = std::memcmp(a.data(), b.data(), a.bytes()) == 0;
  }
  check_input(alike, Exit::data,
              "{}: tensors {} and {} differ; expected equal ones: here they are one, tied",
              copy.file, name, other);
}

void check_tensors(const Architecture& a, const Weights& weights, const Rules& rules,
                   const std::string& path) {
  std::set<std::string> wanted;
  for (const Rule& rule : rules)
    for (const Part& part : rule.parts) {
      check_tensor(weights, part, missing(rule, part, path));
      wanted.insert(part.name);
    }
  for (const Rule& rule : rules) {
    if (rule.copy.empty()) continue;
    check_copy(weights, rule);
    wanted.insert(rule.copy);
  }
  for (auto& [name, stored] : weights) {
    bool known = wanted.contains(name) || std::ranges::any_of(a.ignored, [&name = name](auto& end) {
                   return name.ends_with(end);
                 });
    check_input(known, Exit::data, "{}: tensor {} {} has no place in this model", stored.file,
                printable(name), stored.shape);
  }
}

void check_finite(const Stored& stored, const std::string& name, const Tensor& values) {
  std::span all(values.data<float>(), size_t(values.numel()));
  auto bad = std::ranges::find_if_not(all, [](float x) { return std::isfinite(x); });
  if (bad != all.end())
    fail(Exit::data, "{}: tensor {} has {} at element {}; expected finite weights", stored.file,
         name, *bad, bad - all.begin());
}

/// Returns all parameters, each of which is read when it is written.
std::vector<parallel::Piece> pieces_of(const Rules& rules, const Weights& weights,
                                       Progress& progress) {
  std::vector<parallel::Piece> all;
  for (const Rule& rule : rules) {
    auto fill = [&](const Tensor& ours) {
      if (rule.parts.empty()) fill_(ours, 0);
      for (const Part& part : rule.parts) {
        Tensor theirs = weights.at(part.name).read().to(f32);
        check_finite(weights.at(part.name), part.name, theirs);
        Tensor seen = part.index < 0 ? ours : ours.narrow(0, part.index, 1);
        Tensor place = part.view ? part.view(seen) : seen;
        copy_(place, theirs.view(place.shape()));
        progress.add(uint64_t(theirs.numel()) * sizeof(float));
      }
    };
    all.push_back({rule.ours, "", {.full = rule.full}, deferred(rule.full, f32, fill)});
  }
  return all;
}

/// Gives the model fewer positions than it was trained with.
void crop_positions(const Architecture& a, Weights& weights, int64_t context) {
  if (context == 0) return;
  check_input(context >= 1 && context <= *a.context, Exit::config,
              "import: context={} of a model with {} positions; expected 1 to {}", context,
              *a.context, *a.context);
  *a.context = context;
  auto found = weights.find(a.positions);
  if (found == weights.end() || found->second.shape.rank() != 2) return;
  Stored& table = found->second;
  check_input(table.shape[0] >= context, Exit::data,
              "{}: tensor {} is {}; expected {} rows or more", table.file, a.positions, table.shape,
              context);
  table.shape[0] = context;
  table.read = [whole = table.read, context] { return whole().narrow(0, 0, context).contiguous(); };
}

Source open_source(const Architecture& a, const std::string& from, const Files& files) {
  if (a.open_file && files.is_file(from)) return a.open_file(from, files);
  check_input(!files.list(from).empty(), Exit::not_found,
              "import: {}: no such directory, or it is empty; expected config.json and "
              "model.safetensors",
              from);
  ModelConfig config(from + "/config.json", a.types, files);
  return {config, open_weights(from, a.prefix, files)};
}

parallel::CheckpointState state_of(const Architecture& a, const std::string& from,
                                   std::string& said) {
  auto settings = parallel::values_of(a.settings);
  int64_t vocab = std::stoll(settings.at("vocab"));
  settings["precision"] = "\"fp32\"";
  parallel::CheckpointState state{{"settings", parallel::settings_text(settings)}};
  if (auto found = readable_tokenizer(from, vocab, said)) state["tokenizer"] = found->json();
  return state;
}

/// Returns a text that changes with the files of a model directory.
std::string content_of(const std::string& path) {
  std::string text = path;
  for (const std::string& name : disk().list(path)) {  // sorted
    std::filesystem::directory_entry file(path + "/" + name);
    if (file.is_regular_file())
      text += fmt::format("\n{} {} {}", name, file.file_size(),
                          file.last_write_time().time_since_epoch().count());
  }
  return text;
}

}  // namespace

std::string imported(const Architecture& a, const std::string& path) {
  if (!disk().is_file(path + "/config.json")) return path;
  std::filesystem::path from = std::filesystem::absolute(path + "/").lexically_normal();
  from = from.parent_path();  // without the last slash
  std::string content = a.program + content_of(from.string());
  std::string out = fmt::format("runs/imported/{}-{:08x}", from.filename().string(),
                                crc32c(content.data(), content.size()));
  std::error_code failed;
  std::filesystem::create_directories(parent_directory(out), failed);
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> lock(std::fopen((out + ".lock").c_str(), "a"),
                                                       &std::fclose);
  check_input(
      lock != nullptr, Exit::cannot_write,
      "init: {}.lock cannot be made: {}\n  Make a checkpoint elsewhere, `{} import --from {} "
      "--out NEW`, and give NEW in its place.",
      out, failed ? failed.message() : std::strerror(errno), a.program, path);
  while (!parallel::take_lock(::fileno(lock.get())))  // another process is at it
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  if (disk().is_directory(out)) return out;
  (void)import_model(a, {from.string(), out});
  fmt::print(stderr, "imported {} to {}\n", path, out);
  return out;
}

void read_config(const Architecture& a, const ModelConfig& config) {
  for (auto& [key, size] : a.sizes) *size = config.size(key);
  for (const FixedKey& f : a.fixed) config.expect(f.key, f.allowed, f.why);
  try {
    a.read(config);
    parallel::check_values(a.settings);
  } catch (const Error& e) {  // as the error of a flag
    if (e.code() != Exit::config) throw;
    throw Error(Exit::data, fmt::format("{}: {}", config.path(), e.what()), e.place());
  }
}

void check_layers(const Architecture& a, size_t tensors, const std::string& path) {
  auto [key, layers] = a.sizes[0];
  check_input(uint64_t(*layers) <= tensors, Exit::data,
              "{}: {} is {}; expected no more than its {} tensors", path, key, *layers, tensors);
}

std::string import_model(const Architecture& a, const ImportOptions& o, const Files& files) {
  check_input(!o.from.empty() && !o.out.empty(), Exit::config,
              "import: --from and --out must be given: the directory of a {}, and a new one for "
              "its checkpoint",
              a.name);
  Source source = open_source(a, o.from, files);
  read_config(a, source.config);
  check_layers(a, source.weights.size(), o.from);
  check_input(!a.experts || uint64_t(*a.experts) <= source.weights.size(), Exit::data,
              "{}: more experts than tensors; expected no more than {}", o.from,
              source.weights.size());
  crop_positions(a, source.weights, o.context);
  Rules rules = a.rules();
  take_other_names(a, source.weights, rules);
  check_tensors(a, source.weights, rules, o.from);
  int64_t parameters = 0;
  for (const Rule& rule : rules) parameters += rule.parts.empty() ? 0 : rule.full.numel();

  std::string said;
  NewDirectory out(o.out, files);
  Progress progress("imported", uint64_t(parameters) * sizeof(float));
  auto alone = parallel::single_rank();
  parallel::CheckpointDirectory(out.work(), *alone, files)
      .save(0, pieces_of(rules, source.weights, progress), state_of(a, o.from, said));
  auto copied = text::keep_tokenizer_files(o.from, out.work(), files);
  out.publish();
  said += fmt::format("imported {} parameters of a {} to {}/step-0\n", parameters,
                      a.fitting(source.config.text("model_type")).name, o.out);
  if (!copied.empty())
    said += fmt::format("tokenizer files in {}/{}: {}\n", o.out, text::tokenizer_folder,
                        join(copied, ", "));
  return said + fmt::format("train it further: {} train --init {} --data FILE\n", a.program, o.out);
}

}  // namespace triax::hf
