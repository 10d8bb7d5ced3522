#include "triax/parallel/checkpoint/directory.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

constexpr std::string_view step_prefix = "step-", unfinished_mark = ".tmp-";

// Returns the N of `step-N`, none for other names (`step-07` would not be found by its number).
std::optional<int64_t> step_of(std::string_view name) {
  if (!name.starts_with(step_prefix)) return {};
  std::string_view digits = name.substr(step_prefix.size());
  int64_t step = 0;
  bool plain = parse_number(digits, step) && step >= 0 && digits == std::to_string(step);
  return plain ? std::optional(step) : std::nullopt;
}

bool is_leftover(std::string_view name) {
  size_t mark = name.find(unfinished_mark);
  return mark != name.npos && step_of(name.substr(0, mark)).has_value();
}

// Adds a tensor; parts of one tensor come together.
void add(Manifest& to, const std::string& name, const StoredTensor& tensor) {
  StoredTensor& all =
      to.tensors.try_emplace(name, StoredTensor{tensor.dtype, tensor.full, {}}).first->second;
  check(all.dtype == tensor.dtype && all.full == tensor.full,
        "checkpoint: pieces disagree about tensor {}: {} {} and {} {}", name, all.dtype, all.full,
        tensor.dtype, tensor.full);
  all.parts.insert(all.parts.end(), tensor.parts.begin(), tensor.parts.end());
}

// The file system until a stop is requested: then every operation fails.
class UntilStopped final : public Files {
 public:
  UntilStopped(const Files& files, const std::stop_token& stop) : files_(files), stop_(stop) {}
  int fault(const char* operation, const std::string& path) const override {
    return stop_.stop_requested() ? ECANCELED : files_.fault(operation, path);
  }

 private:
  const Files& files_;
  const std::stop_token& stop_;
};

// Writes this rank's file; returns a manifest of this file alone. No pieces, no file.
Manifest write_pieces(const std::string& directory, const std::string& file_name,
                      const std::vector<Piece>& pieces, const Files& files) {
  Manifest mine;
  if (pieces.empty()) return mine;
  std::vector<nn::NamedTensor> tensors;
  std::set<std::string> taken;
  for (const Piece& p : pieces) {
    check_piece(p);
    std::string name = logical_name(p.name, p.kind), unique = name;
    for (int i = 1; !taken.insert(unique).second; ++i) unique = fmt::format("{}#{}", name, i);
    Tensor value = p.value.detach();
    if (value.shape() != held_shape(p.part)) value = value.contiguous().view(held_shape(p.part));
    tensors.push_back({unique, value});
  }
  nn::Checksums sums = nn::write_tensors(directory + "/" + file_name, tensors, {}, files);
  mine.files.push_back({.name = file_name, .bytes = sums.file_bytes, .header = sums.header});
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& p = pieces[i];
    StoredTensor stored{
        p.value.dtype(), p.part.full, {{0, tensors[i].name, sums.tensors[i], p.part}}};
    add(mine, logical_name(p.name, p.kind), stored);
  }
  return mine;
}

void merge(Manifest& all, Manifest one) {
  size_t first_file = all.files.size();
  all.files.insert(all.files.end(), one.files.begin(), one.files.end());
  for (auto& [name, tensor] : one.tensors) {
    for (StoredPart& part : tensor.parts) part.file += first_file;
    add(all, name, tensor);
  }
}

std::vector<int64_t> steps_in(const std::string& path, const Files& files) {
  std::vector<int64_t> steps;
  for (const std::string& name : files.list(path))
    if (auto step = step_of(name); step && files.is_directory(path + "/" + name))
      steps.push_back(*step);
  std::ranges::sort(steps);
  return steps;
}

// Ignores errors after a failure, which says more than they could.
template <class Work> void without_errors(Work work) try { work(); } catch (const Error&) {
}

// Prints an error: a path that cannot be removed takes room, but nothing depends on it.
template <class Work> void warn_on_error(const std::string& path, Work work) try {
  work();
} catch (const Error& e) {
  std::string said = fmt::format("checkpoint: {} is not needed and stays: {}", path, e.what());
  std::fputs((without_controls(said) + "\n").c_str(), stderr);
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(std::string path, Communicator& ranks, const Files& files)
    : path_(std::move(path)), ranks_(ranks), files_(files) {
  while (path_.size() > 1 && path_.back() == '/') path_.pop_back();
}

std::string CheckpointDirectory::step_path(int64_t step) const {
  return fmt::format("{}/{}{}", path_, step_prefix, step);
}

std::vector<int64_t> CheckpointDirectory::steps() const { return steps_in(path_, files_); }

std::vector<int64_t> CheckpointDirectory::agreed_steps() {
  std::string text = text_of_first(ranks_, [&] { return join(steps(), " "); });
  std::vector<int64_t> agreed;
  for (const char *at = text.data(), *end = at + text.size(); at < end; ++at)
    at = std::from_chars(at, end, agreed.emplace_back()).ptr;
  return agreed;
}

CheckpointDirectory::Search CheckpointDirectory::newest_good() {
  std::vector<int64_t> candidates = agreed_steps();
  Search search;
  for (size_t i = candidates.size(); i-- > 0 && !search.good;) try {
      search.good = Checkpoint::open(step_path(candidates[i]), ranks_, files_);
    } catch (const Error& e) {
      bool damaged = e.code() == Exit::data || e.code() == Exit::not_found;
      if (!damaged) throw;  // a disk that cannot be read now says nothing about the checkpoint
      if (search.damage.empty()) search.damage = e.what();
    }
  return search;
}

std::optional<Checkpoint> CheckpointDirectory::resume(const std::string& wish) {
  std::string how = broadcast_text(ranks_, wish);
  if (how != "auto" && how != "last-good") return open_checkpoint(how, ranks_, files_);
  auto [good, damage] = newest_good();
  if (!good && damage.empty()) {
    check_input(how == "auto", Exit::not_found, "checkpoint: there is none in {}", path_);
    return {};
  }
  if (damage.empty() || (good && how == "last-good")) return std::move(good);
  std::string advice =
      good ? fmt::format(
                 "Newest verified checkpoint: {}. Take it by its path, or, of the run's own "
                 "directory, with --resume last-good.",
                 step_path(good->step()))
           : fmt::format("No checkpoint in {} verifies.", path_);
  fail(Exit::data, "{}\n  Nothing was loaded. {}", damage, advice);
}

std::optional<std::pair<int64_t, double>> CheckpointDirectory::lowest(const std::string& key) {
  std::string found = text_of_first(ranks_, [&] {
    std::optional<std::pair<double, int64_t>> least;
    for (int64_t step : steps())
      without_errors([&] {
        auto state = read_manifest(step_path(step), files_).state;
        if (auto it = state.find(key); it != state.end()) {
          std::pair now(std::strtod(it->second.c_str(), nullptr), step);
          if (!least || now < *least) least = now;
        }
      });
    return least ? fmt::format("{} {}", least->second, least->first) : "";
  });
  if (found.empty()) return {};
  char* end = nullptr;
  int64_t step = std::strtoll(found.c_str(), &end, 10);
  return std::pair(step, std::strtod(end, nullptr));
}

void CheckpointDirectory::prune(int keep, std::optional<int64_t> also) {
  check(keep >= 1, "checkpoint: prune keeps {}; expected at least 1", keep);
  std::vector<int64_t> all = agreed_steps();
  if (all.empty()) return;
  if (verified_ != all.back())
    if (Search search = newest_good(); !search.good || !search.damage.empty()) return;
  on_first(ranks_, [&] {
    std::vector<int64_t> old = steps();
    old.resize(old.size() - std::min(old.size(), size_t(keep)));
    for (int64_t step : old) {
      if (step == also) continue;
      // Renamed first, so that dying half-way does not leave what looks like a damaged checkpoint.
      std::string gone = step_path(step) + std::string(unfinished_mark) + unique_suffix();
      warn_on_error(step_path(step), [&] {
        files_.rename(step_path(step), gone);
        files_.remove(gone);
      });
    }
  });
}

/// Returns what dead writers have left, after finishing exchanges that they had begun.
std::vector<std::string> CheckpointDirectory::leftovers() const {
  finish_exchanges();
  std::vector<std::string> paths;
  for (const std::string& name : files_.list(path_))
    if (is_leftover(name)) paths.push_back(path_ + "/" + name);
  return paths;
}

/// Gives a complete replacement its name where a step was set aside and the writer died.
void CheckpointDirectory::finish_exchanges() const {
  for (const std::string& name : files_.list(path_)) {
    std::string before = path_ + "/" + name,
                named = before.substr(0, before.rfind(unfinished_mark));
    if (!is_leftover(name) || !name.ends_with(Files::aside) || !files_.is_directory(before) ||
        files_.is_directory(named))
      continue;
    std::string after = before.substr(0, before.size() - std::string_view(Files::aside).size());
    auto whole = [&](const std::string& path) {
      return std::ranges::count(files_.list(path), manifest_name) > 0;
    };
    if (whole(after)) files_.rename(after, named);
    else if (whole(before)) files_.rename(before, named);
  }
}

void CheckpointDirectory::remove_leftovers() {
  on_first(ranks_, [&] {
    for (auto& path : leftovers()) warn_on_error(path, [&] { files_.remove(path); });
  });
}

// Makes a fresh directory for the files of one attempt, on rank 0.
std::string CheckpointDirectory::make_directory(int64_t step) const {
  if (!files_.is_directory(path_)) {
    files_.make_directory(path_);
    files_.sync_directory(parent_directory(path_));
  }
  for (auto& path : leftovers())  // what stays was reported
    without_errors([&] { files_.remove(path); });
  std::string unfinished = step_path(step) + std::string(unfinished_mark) + unique_suffix();
  files_.make_directory(unfinished);
  return unfinished;
}

void CheckpointDirectory::save(int64_t step, const std::vector<Piece>& pieces,
                               const CheckpointState& state) {
  Unfinished checkpoint = begin(step);
  auto reports = collect(checkpoint, [&] { return write(checkpoint, pieces); });
  conclude(checkpoint, [&] { publish(checkpoint, reports, state); });
}

Unfinished CheckpointDirectory::begin(int64_t step) {
  check(step >= 0, "checkpoint: step {}", step);
  return {step, text_of_first(ranks_, [&] { return make_directory(step); })};
}

std::string CheckpointDirectory::write(const Unfinished& to, const std::vector<Piece>& pieces,
                                       const std::stop_token& stop) const {
  UntilStopped files(files_, stop);
  std::string file_name = fmt::format("rank{}.safetensors", ranks_.rank());
  Manifest mine = write_pieces(to.path, file_name, pieces, files);
  try {
    Checkpoint::verify(to.path, mine, files);
  } catch (const Error& e) {
    if (e.code() != Exit::data) throw;
    fail(Exit::io,
         "{}\n  It had just been written: expected the same bytes. Look at the disk and the memory "
         "of this machine.",
         e.what());
  }
  return to_text(mine);
}

// Does collective work; if it fails, the files are removed before anybody throws.
void CheckpointDirectory::guarded(const Unfinished& checkpoint,
                                  const std::function<void()>& work) try {
  work();
} catch (const Error& e) {
  // All have met since, so nobody is writing; or ranks were lost, and what stays behind is a
  // leftover, which the next save removes.
  if (ranks_.rank() == 0) abandon(checkpoint);
  // A rank that now ends its process, and with it the job, must not do so before that is done.
  if (e.code() != Exit::peer_lost) without_errors([&] { ranks_.barrier(); });
  throw;
}

std::vector<std::string> CheckpointDirectory::collect(const Unfinished& checkpoint,
                                                      const std::function<std::string()>& written) {
  std::vector<std::string> reports;
  guarded(checkpoint, [&] {
    std::string mine;
    together(ranks_, [&] { mine = written(); });
    reports = gather_text(ranks_, mine);
  });
  return reports;
}

void CheckpointDirectory::publish(const Unfinished& checkpoint,
                                  const std::vector<std::string>& reports,
                                  const CheckpointState& state) const {
  Manifest all;
  for (const std::string& report : reports) merge(all, parse_manifest(report, checkpoint.path));
  all.step = checkpoint.step;
  all.state = state;
  name(checkpoint.path, all);
}

void CheckpointDirectory::conclude(const Unfinished& checkpoint,
                                   const std::function<void()>& published) {
  guarded(checkpoint, [&] { on_first(ranks_, published); });
  verified_ = checkpoint.step;
}

void CheckpointDirectory::abandon(const Unfinished& checkpoint) const {
  without_errors([&] { files_.remove(checkpoint.path); });
}

// Completes the directory, then gives it its name, on rank 0.
void CheckpointDirectory::name(const std::string& unfinished, const Manifest& manifest) const {
  std::string problem = incomplete(manifest);
  check(problem.empty(), "checkpoint: step {}: {}", manifest.step, problem);
  std::string path = unfinished + "/" + manifest_name, text = to_text(manifest);
  check_input(
      text.size() <= max_manifest_bytes, Exit::cannot_write,
      "checkpoint: the manifest has {} bytes; a resume reads at most {}\n  A lower ZeRO stage "
      "or fewer ranks store a tensor in fewer parts.",
      text.size(), max_manifest_bytes);
  files_.write(path, text);
  check_input(files_.read(path, text.size()) == text, Exit::io,
              "checkpoint: {} differs from what had just been written\n  Look at the disk and the "
              "memory of this machine.",
              path);
  files_.sync_directory(unfinished);
  std::string named = step_path(manifest.step);
  bool replaces = files_.is_directory(named);  // training went back and came here again
  if (replaces) files_.exchange(unfinished, named);
  else files_.rename(unfinished, named);
  files_.sync_directory(path_);
  if (replaces) warn_on_error(unfinished, [&] { files_.remove(unfinished); });
}

std::string newest_checkpoint(const std::string& path, const Files& files) {
  auto steps = steps_in(path, files);
  return steps.empty() ? path : fmt::format("{}/{}{}", path, step_prefix, steps.back());
}

Checkpoint open_checkpoint(const std::string& path, Communicator& ranks, const Files& files) {
  CheckpointDirectory run(path, ranks, files);
  if (run.steps().empty()) return Checkpoint::open(path, ranks, files);
  return *run.resume("auto");
}

}  // namespace triax::parallel
