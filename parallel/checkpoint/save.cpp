#include <set>

#include "core/check.h"
#include "parallel/checkpoint/directory.h"

// Step 1 to 3 of the protocol: every rank writes, all meet, rank 0 publishes.

namespace triax::parallel {

namespace {

// Write this rank's file; a manifest that knows only this file. No pieces, no file.
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
    auto& stored = mine.tensors[logical_name(p.name, p.kind)];
    check(stored.parts.empty() || (stored.dtype == p.value.dtype() && stored.full == p.part.full),
          "checkpoint: two pieces of tensor {} differ in dtype or full shape", p.name);
    stored.dtype = p.value.dtype();
    stored.full = p.part.full;
    stored.parts.push_back(
        {.file = 0, .tensor = tensors[i].name, .crc32c = sums.tensors[i], .part = p.part});
  }
  return mine;
}

void merge(Manifest& all, const Manifest& one) {
  size_t first_file = all.files.size();
  all.files.insert(all.files.end(), one.files.begin(), one.files.end());
  for (const auto& [name, tensor] : one.tensors) {
    auto [known, fresh] = all.tensors.try_emplace(name);
    StoredTensor& merged = known->second;
    if (fresh) {
      merged.dtype = tensor.dtype;
      merged.full = tensor.full;
    }
    check(merged.dtype == tensor.dtype && merged.full == tensor.full,
          "checkpoint: ranks disagree about tensor {}: {} {} and {} {}", name, merged.dtype,
          merged.full, tensor.dtype, tensor.full);
    for (StoredPart part : tensor.parts) {
      part.file += first_file;
      merged.parts.push_back(std::move(part));
    }
  }
}

}  // namespace

void CheckpointDirectory::save(int64_t step, const std::vector<Piece>& pieces,
                               const CheckpointState& state) {
  check(step >= 0, "checkpoint: step {}", step);
  std::string unfinished = text_of_first(ranks_, [&] { return begin(step); });
  std::string file_name = fmt::format("rank{}.safetensors", ranks_.rank());
  try {
    std::string mine;
    together(ranks_, [&] { mine = to_text(write_pieces(unfinished, file_name, pieces, files_)); });
    auto reports = gather_text(ranks_, mine);
    on_first(ranks_, [&] {
      Manifest all;
      for (const std::string& report : reports) merge(all, parse_manifest(report, unfinished));
      all.step = step;
      all.state = state;
      publish(unfinished, std::move(all));
    });
  } catch (const Error& e) {
    if (ranks_.rank() == 0) abandon(unfinished);
    if (e.code() != Exit::peer_lost) wait_for_all();
    throw;
  }
}

// After a failure that all ranks throw: one that then ends its process, and with it the job, must
// not do so while rank 0 still removes files.
void CheckpointDirectory::wait_for_all() {
  try {
    ranks_.barrier();
  } catch (const Error&) {  // the failure itself says more
  }
}

// Rank 0: complete the directory, then give it its name.
void CheckpointDirectory::publish(const std::string& unfinished, Manifest manifest) const {
  std::string problem = incomplete(manifest);
  check(problem.empty(), "checkpoint: step {}: {}", manifest.step, problem);
  files_.write(unfinished + "/" + manifest_name, to_text(manifest));
  files_.sync_directory(unfinished);
  std::string named = step_path(manifest.step);
  bool replaces = files_.is_directory(named);  // training went back and came here again
  if (replaces) files_.exchange(unfinished, named);
  else files_.rename(unfinished, named);
  files_.sync_directory(path_);
  if (replaces) files_.remove(unfinished);
}

// Rank 0, after a failure: all have met since, so nobody is writing (or ranks were lost, and what
// stays behind is a leftover). That failure says more than one of these could.
void CheckpointDirectory::abandon(const std::string& unfinished) const {
  try {
    files_.remove(unfinished);
  } catch (const Error&) {  // the next save tries again
  }
}

}  // namespace triax::parallel
