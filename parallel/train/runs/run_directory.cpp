#include "triax/parallel/train/runs/run_directory.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/process.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/runs/initial_weights.h"

namespace triax::parallel {
namespace {

std::string holder() {
  return fmt::format("process {} on {} since {:%Y-%m-%d %H:%M:%S}", ::getpid(), host_name(),
                     fmt::localtime(std::time(nullptr)));
}

std::string read_all(int descriptor) {
  char text[512] = "";
  auto n = ::pread(descriptor, text, sizeof text - 1, 0);
  return n > 0 ? std::string(text, size_t(n)) : "a job that is starting";
}

std::map<std::string, std::string> from_lines(const std::string& lines) {
  std::map<std::string, std::string> values;
  std::istringstream in(lines);
  for (std::string line; std::getline(in, line);) {
    if (size_t at = line.find(" = "); at != line.npos)
      values[line.substr(0, at)] = line.substr(at + 3);
  }
  return values;
}

std::string end_of(size_t lines) { return fmt::format("# {} settings\n", lines); }

constexpr const char* metrics_path = "metrics_path";  // names the file of the metrics
constexpr const char* config_file = "config.toml";
constexpr const char* settings_file = "settings.txt";  // all of them, resolved

std::string absolute(const std::string& file) {
  return file.empty() ? "" : std::filesystem::absolute(file).lexically_normal().string();
}

/// Returns the path without links, as far as it exists.
std::filesystem::path resolved(const std::string& file) {
  std::error_code error;
  auto path = std::filesystem::weakly_canonical(std::filesystem::absolute(file), error);
  return error ? std::filesystem::path(absolute(file)) : path;
}

/// Returns the FLOP of matrix products and attention, forward and backward, without the work that
/// ranks repeat and that of recomputation.
double flop_per_step(const Task& task, const StepOptions& o) {
  Facts facts = probe(task.build, batch_like(task, o.micro_batch),
                      {.dp = o.mesh.replicas(), .dtype = o.dtype, .groups = o.groups});
  double flop = 0;
  for (auto& layer : facts.layers()) flop += layer.forward.products + layer.backward.products;
  return flop / double(o.micro_batch) * double(o.global_batch);
}

}  // namespace

bool take_lock(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
}

RunLock::RunLock(const std::string& directory) : file_(nullptr, &std::fclose) {
  // A link may lead to a file that somebody wants us to overwrite.
  int file = ::open((directory + "/lock").c_str(),
                    O_RDWR | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
  if (file >= 0) file_.reset(::fdopen(file, "a+"));
  auto check_written = [&](bool written) {
    check_input(written, Exit::cannot_write, "run directory: cannot write {}/lock: {}", directory,
                std::strerror(errno));
  };
  check_written(file_ != nullptr);
  int descriptor = ::fileno(file_.get());
  if (!take_lock(descriptor))
    fail(Exit::config,
         "run directory {} is in use by {}\n  Wait for it, stop it, or choose another --out. "
         "Nothing was changed.",
         directory, without_controls(read_all(descriptor)));
  std::string who = holder();
  check_written(::ftruncate(descriptor, 0) == 0 &&
                ::pwrite(descriptor, who.data(), who.size(), 0) == ssize_t(who.size()));
}

std::string make_run_directory(const std::string& program) {
  std::string name =
      fmt::format("runs/{:%Y%m%d-%H%M%S}-{}", fmt::localtime(std::time(nullptr)), program);
  std::string path = name;
  disk().make_directory(parent_directory(path));
  for (int n = 2; ::mkdir(path.c_str(), 0777) != 0; ++n) {
    check_input(errno == EEXIST, Exit::cannot_write, "run directory: cannot make {}: {}", path,
                std::strerror(errno));
    path = fmt::format("{}-{}", name, n);
  }
  return path;
}

UnlessUsed::~UnlessUsed() {
  std::error_code error;
  std::filesystem::directory_iterator files(path_, error);
  bool used =
      std::ranges::any_of(files, [](auto& file) { return file.path().filename() != "lock"; });
  if (!error && !used) std::filesystem::remove_all(path_, error);
}

void replace_file(const std::string& path, const std::string& text, const Files& files) {
  std::string unfinished = path + ".tmp";
  files.remove(unfinished);  // left by a run that was killed
  files.write(unfinished, text);
  files.rename(unfinished, path);
  files.sync_directory(parent_directory(path));
}

std::string settings_text(const std::map<std::string, std::string>& literals) {
  std::string lines;
  for (auto& [name, value] : literals) lines += name + " = " + value + "\n";
  return lines;
}

std::string whole_settings(const std::string& path) {
  std::string text = disk().read(path, 1 << 20);
  auto lines = size_t(std::ranges::count(text, '\n'));
  check_input(lines > 0 && text.ends_with(end_of(lines - 1)), Exit::data,
              "{} is cut, or was written by an earlier version: it does not end with the number of "
              "its lines\n  Remove it: then the checkpoints say with which settings the run was "
              "trained.",
              path);
  return text;
}

std::map<std::string, std::string> saved_settings(const Checkpoint& checkpoint) {
  return from_lines(checkpoint.state("settings"));
}

std::map<std::string, std::string> saved_settings(const CheckpointState& state) {
  auto found = state.find("settings");
  return from_lines(found == state.end() ? "" : found->second);
}

void restore(const Settings& settings, const std::string& path, const CheckpointState& state) {
  auto saved = saved_settings(state);
  for (const Setting& s : settings)
    if (auto known = saved.find(s.name); known != saved.end())
      assign(s, without_quotes(known->second),
             {Exit::data, fmt::format("checkpoint {}: {}", path, s.name)});
}

void restore(const Settings& settings, const Checkpoint& checkpoint) {
  (void)checkpoint.state("settings");  // must be there
  restore(settings, checkpoint.path(), checkpoint.state());
}

RunDirectory::RunDirectory(const Contents& contents, Communicator& host)
    : contents_(contents), ranks_(host), checkpoints_(contents.options.out, host) {}

void RunDirectory::lock() {
  if (!lock_) lock_ = std::make_unique<RunLock>(path());
}

Position RunDirectory::open(Step& step) {
  const std::string& how = contents_.options.resume;
  if (path().empty()) {
    check_input(how != "auto" && how != "last-good", Exit::config,
                "trainer: resume={} without a run directory; expected options.out, or a checkpoint",
                how);
    return resume(step);
  }
  on_first(ranks_, [&] {
    refuse_own_files();
    refuse_others();
    if (disk().is_directory(path())) lock();
  });
  checkpoints_.remove_leftovers();  // one of them may be the newest checkpoint
  const TrainOptions& o = contents_.options;
  Position at = how.empty() ? Position() : resume(step);
  if (at.step == 0 && !o.init.empty()) start_from(o, contents_.task, step, ranks_);
  on_first(ranks_, [&] {
    refuse_newer_than(at.step);
    if (at.step > 0) compare_metrics();
    disk().make_directory(path());
    lock();
  });
  return at;
}

/// Refuses a directory of somebody else: nothing there is overwritten. A run's own directory has
/// checkpoints, or says where its metrics are; one that died at once has none in its file yet.
void RunDirectory::refuse_others() const {
  std::error_code unreachable;  // the next error says more
  auto holds = [&](const std::string& name) {
    std::string file = path() + "/" + name;
    return std::filesystem::exists(file, unreachable) &&
           !(name == "metrics.jsonl" && std::filesystem::is_empty(file, unreachable));
  };
  if (!checkpoints_.steps().empty() || holds(metrics_path)) return;
  std::vector<std::string> own{config_file, settings_file, "metrics.jsonl"};
  for (auto& [attachment, text] : contents_.task.attachments) own.push_back(attachment + ".json");
  for (auto& name : own)
    check_input(!holds(name), Exit::config,
                "run directory {}: it holds {}, and is not that of a run; expected an empty or a "
                "new one\n  Choose another --out. Nothing was changed.",
                path(), name);
}

/// Refuses metrics in a file that the run replaces, removes or renames: they would be lost.
void RunDirectory::refuse_own_files() const {
  const std::string& metrics = contents_.options.metrics;
  std::string own = path() + "/metrics.jsonl";
  std::error_code unreachable;  // the next error says more
  check_input(!metrics.empty() || !std::filesystem::is_symlink(own, unreachable), Exit::config,
              "metrics: {} is a link, and a run may shorten what it leads to; expected a plain "
              "file, or --metrics {}",
              own, printable(resolved(own).string()));
  if (metrics.empty()) return;
  std::string name = resolved(metrics).lexically_relative(resolved(path())).begin()->string();
  if (name.ends_with(".tmp")) name.resize(name.size() - 4);
  bool kept = name == metrics_path || name == config_file || name == settings_file ||
              name == "certificate.jsonl" || name == "trace.json" || name == "lock" ||
              name.starts_with("step-");
  for (auto& [attachment, text] : contents_.task.attachments) kept |= name == attachment + ".json";
  check_input(!kept, Exit::config,
              "metrics: {}: the run directory keeps {} for itself; expected another --metrics",
              metrics, name);
}

std::string RunDirectory::metrics_before() const {
  std::ifstream in(path() + "/" + metrics_path);
  std::string before;
  std::getline(in, before);
  return before;
}

bool RunDirectory::wrote(const std::string& metrics) const {
  return metrics_before() == absolute(metrics);
}

/// Reports a new file of metrics, which lacks the steps before.
void RunDirectory::compare_metrics() {
  const std::string& asked = contents_.options.metrics;
  std::string before = metrics_before();
  std::string now = absolute(asked.empty() ? path() + "/metrics.jsonl" : asked);
  if (!before.empty() && before != now && !std::filesystem::exists(now))
    changes_.push_back(fmt::format("metrics was {}, now {}", printable(before), now));
}

void RunDirectory::write_configuration(const std::string& metrics, int64_t parameters,
                                       int64_t first_step) {
  on_first(ranks_, [&] {
    Settings all = contents_.settings;
    std::erase_if(all, [](auto& s) { return !s.saved; });  // those that name this start of the run
    auto settings = values_of(all);
    settings["first step"] = std::to_string(first_step);
    settings["model parameters"] = std::to_string(parameters);
    if (const std::string& memory = contents_.task.foreseen_memory; !memory.empty())
      settings["memory foreseen"] = '"' + memory + '"';
    settings["model FLOP per step"] =
        fmt::format("{}", flop_per_step(contents_.task, contents_.options.step));
    replace_file(path() + "/" + metrics_path, absolute(metrics) + "\n");
    replace_file(path() + "/" + settings_file, settings_text(settings) + end_of(settings.size()));
    replace_file(path() + "/" + config_file, contents_.task.config);
    for (auto& [name, text] : contents_.task.attachments)
      replace_file(path() + "/" + name + ".json", text);
    if (contents_.task.accompany) contents_.task.accompany(path());
  });
}

/// Refuses to begin below newer checkpoints: two histories would lie side by side, and pruning and
/// --resume auto would take the wrong ones. Only last-good may: what is newer is damaged.
void RunDirectory::refuse_newer_than(int64_t number) const {
  auto steps = checkpoints_.steps();
  bool free = steps.empty() || steps.back() < number || held_ == steps.back() ||
              contents_.options.resume == "last-good";
  check_input(free, Exit::config,
              "run directory {} holds step-{} of other training; this would go on after step {}\n"
              "  Continue with --resume auto, or choose another --out.",
              path(), steps.empty() ? 0 : steps.back(), number);
}

void RunDirectory::begin_save(const Position& at, const Step& step,
                              std::optional<double> val_loss) {
  ProfileRange range("checkpoint");
  CheckpointState state = step.state();
  auto settings = values_of(contents_.settings);
  settings.merge(identity_of(contents_.task));
  settings.merge(schedule_content(contents_.options.step));
  if (contents_.options.step.bitwise) settings["instruction level"] = backend(cpu).name();
  state["settings"] = settings_text(settings);
  state["config"] = contents_.task.config;
  state["consumed_samples"] = std::to_string(at.samples);
  if (val_loss && std::isfinite(*val_loss)) state["val_loss"] = fmt::format("{}", *val_loss);
  for (auto& [name, text] : contents_.task.attachments) state[name] = text;
  auto pieces = step.pieces(Holder::owner);
  if (contents_.options.save_async)
    background_ = std::make_unique<BackgroundSave>(checkpoints_, ranks_, at.step, pieces, state);
  else checkpoints_.save(at.step, pieces, state);
  saving_ = at.step;
}

bool RunDirectory::add_validation(int64_t step, double val_loss) {
  return !text_of_first(ranks_, [&] {
            std::string checkpoint = fmt::format("{}/step-{}", path(), step);
            if (held_ != step || !disk().is_directory(checkpoint)) return std::string();
            Manifest manifest = read_manifest(checkpoint);
            manifest.state["val_loss"] = fmt::format("{}", val_loss);
            replace_file(checkpoint + "/" + manifest_name, to_text(manifest));
            return checkpoint;
          }).empty();
}

std::optional<int64_t> RunDirectory::end_save(Wait wait) {
  if (!saving_) return {};
  auto save = std::move(background_);
  auto step = std::exchange(saving_, {});
  if (save && wait == Wait::no && !save->done()) {
    background_ = std::move(save);
    saving_ = step;
    return {};
  }
  ProfileRange range("checkpoint");
  if (save) save->commit();
  held_ = step;
  std::optional<int64_t> kept;
  if (contents_.options.keep_best)
    if (auto lowest = best()) kept = lowest->first;
  checkpoints_.prune(int(contents_.options.keep), kept);
  return step;
}

}  // namespace triax::parallel
