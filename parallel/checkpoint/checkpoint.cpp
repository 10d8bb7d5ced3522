#include "triax/parallel/checkpoint/checkpoint.h"

#include <errno.h>  // program_invocation_short_name

#include <algorithm>
#include <cstring>
#include <set>

#include "triax/core/check.h"

namespace triax::parallel {

namespace {

// Copies runs of elements out of one stored tensor. Short runs (a slice of a late dim has one per
// row) go through a window, so that the disk is read in large steps.
class RunReader {
 public:
  RunReader(const nn::TensorFile& file, const nn::TensorEntry& entry)
      : file_(file), entry_(entry), element_(int64_t(size_of(entry.dtype))) {}

  void copy(int64_t from, int64_t count, char* to) {
    constexpr int64_t short_run = 64 << 10, window = 1 << 20;  // bytes
    if (count * element_ >= short_run) return file_.read_elements(entry_, from, count, to);
    if (from < begin_ || from + count > end_) {
      begin_ = from;
      end_ = std::min(from + window / element_, entry_.shape.numel());
      bytes_.resize(size_t((end_ - begin_) * element_));
      file_.read_elements(entry_, begin_, end_ - begin_, bytes_.data());
    }
    std::memcpy(to, &bytes_[size_t((from - begin_) * element_)], size_t(count * element_));
  }

 private:
  const nn::TensorFile& file_;
  const nn::TensorEntry& entry_;
  int64_t element_, begin_ = 0, end_ = 0;
  std::string bytes_;
};

// Turns an error in a file that a manifest vouches for into damage.
template <class Work> void as_damage(const std::string& path, Work&& work) try {
  work();
} catch (const Error& e) {
  if (e.code() != Exit::data && e.code() != Exit::not_found) throw;
  throw Error(Exit::data, fmt::format("checkpoint {} is damaged: {}", path, e.what()), e.place());
}

std::string manifest_text(const std::string& path, const Files& files) {
  auto names = files.list(path);
  check_input(!names.empty(), Exit::not_found, "checkpoint {}: no such directory, or it is empty",
              path);
  bool hugging_face = std::ranges::count(names, "config.json") > 0;
  check_input(std::ranges::count(names, manifest_name) > 0, Exit::data,
              "checkpoint {}: this is not a checkpoint: it has no {}\n  Expected RUN/step-N, or a "
              "run directory that has one.{}",
              path, manifest_name,
              hugging_face
                  ? fmt::format(" Of a model of Hugging Face, `import` makes one: {} import "
                                "--from {} --out NEW, and NEW in its place here.",
                                program_invocation_short_name, path)
                  : "");
  std::string text;
  as_damage(path, [&] {
    text = files.read(path + "/" + manifest_name, max_manifest_bytes, Links::refuse);
  });
  return text;
}

/// Says why only one of checkpoint and model has a tensor, if both have its parameter.
const char* why(bool same_parameter) {
  return same_parameter ? ": the optimizer or the frozen parameters differ\n"
                          "  Resume with the same optimizer and --groups, or start a new run "
                          "directory with --init."
                        : "";
}

}  // namespace

Manifest read_manifest(const std::string& path, const Files& files) {
  return parse_manifest(manifest_text(path, files), path);
}

void check_piece(const Piece& p) {
  std::string name = logical_name(p.name, p.kind);
  check(problem(p.part).empty(), "checkpoint: tensor {}: {}", name, problem(p.part));
  check(p.value.defined(), "checkpoint: tensor {}: no value", name);
  check(p.value.shape() == held_shape(p.part) || p.value.shape() == Shape{count(p.part)},
        "checkpoint: tensor {}: {} for a part of {} elements; expected {} or flat", name, p.value,
        count(p.part), held_shape(p.part));
}

Checkpoint::Checkpoint(std::string path, const Files& files, Manifest manifest)
    : path_(std::move(path)),
      files_(&files),
      manifest_(std::move(manifest)),
      open_files_(manifest_.files.size()) {}

Checkpoint Checkpoint::open(const std::string& path, Communicator& ranks, const Files& files) {
  std::string text = text_of_first(ranks, [&] {
    std::string manifest = manifest_text(path, files);
    Checkpoint(path, files, parse_manifest(manifest, path)).verify_sizes();
    return manifest;
  });
  Checkpoint opened(path, files, parse_manifest(text, path));
  opened.ranks_ = &ranks;
  together(ranks, [&] {
    for (size_t i = size_t(ranks.rank()); i < opened.open_files_.size(); i += size_t(ranks.size()))
      opened.verify_file(i);
  });
  return opened;
}

void Checkpoint::verify(const std::string& path, const Manifest& manifest, const Files& files) {
  Checkpoint written(path, files, manifest);
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    written.verify_file(i);
    written.open_files_[i].reset();
  }
}

void Checkpoint::verify_sizes() const {
  as_damage(path_, [&] {
    for (const StoredFile& f : manifest_.files) {
      uint64_t bytes = files_->open(path_ + "/" + f.name, Links::refuse).size();
      check_input(bytes == f.bytes, Exit::data, "{}, {} bytes; expected {}", f.name, bytes,
                  f.bytes);
    }
    std::string problem = incomplete(manifest_);
    check_input(problem.empty(), Exit::data, "{}", problem);
  });
}

void Checkpoint::verify_file(size_t index) {
  const StoredFile& stored = manifest_.files[index];
  as_damage(path_, [&] {
    const nn::TensorFile& f = file(index);
    check_input(f.header_checksum() == stored.header && f.file_bytes() == stored.bytes, Exit::data,
                "{}, header, checksum differs", stored.name);
    size_t known = 0;
    for (const auto& [name, tensor] : manifest_.tensors)
      for (const StoredPart& p : tensor.parts) {
        if (p.file != index) continue;
        const nn::TensorEntry* entry = f.find(p.tensor);
        check_input(entry && entry->dtype == tensor.dtype && entry->shape == held_shape(p.part),
                    Exit::data, "{}, tensor {}, not stored as the manifest says", stored.name,
                    printable(name));
        check_input(f.checksum(*entry) == p.crc32c, Exit::data, "{}, tensor {}, checksum differs",
                    stored.name, printable(name));
        ++known;
      }
    check_input(known == f.entries().size(), Exit::data, "{}, {} tensors; the manifest knows {}",
                stored.name, f.entries().size(), known);
  });
}

const nn::TensorFile& Checkpoint::file(size_t index) {
  if (!open_files_[index])
    open_files_[index] = std::make_unique<nn::TensorFile>(path_ + "/" + manifest_.files[index].name,
                                                          *files_, Links::refuse);
  return *open_files_[index];
}

const std::string& Checkpoint::state(const std::string& key) const {
  auto found = manifest_.state.find(key);
  check_input(found != manifest_.state.end(), Exit::data, "checkpoint {}: its state has no {}",
              path_, key);
  return found->second;
}

const StoredTensor& Checkpoint::at(const std::string& name, const std::string& kind,
                                   const Part& part) const {
  auto found = manifest_.tensors.find(logical_name(name, kind));
  check_input(found != manifest_.tensors.end(), Exit::data, "checkpoint {}: it has no tensor {}{}",
              path_, logical_name(name, kind),
              why(!kind.empty() && manifest_.tensors.contains(name)));
  check_input(found->second.full == part.full, Exit::data,
              "checkpoint {}: tensor {} is {}; expected {}", path_, found->first,
              found->second.full, part.full);
  return found->second;
}

void Checkpoint::check_compatible(const Piece& p) const {
  check_piece(p);
  const StoredTensor& stored = at(p.name, p.kind, p.part);
  check_input(stored.dtype == p.value.dtype(), Exit::data,
              "checkpoint {}: tensor {} is {}; expected {}", path_, logical_name(p.name, p.kind),
              stored.dtype, p.value.dtype());
}

void Checkpoint::check_claimed(const std::vector<Piece>& pieces, Communicator& ranks) const {
  std::string mine;
  for (const Piece& p : pieces) mine += logical_name(p.name, p.kind) + '\n';
  auto wanted = gather_text(ranks, mine);
  together(ranks, [&] {
    std::set<std::string> names;
    for (const std::string& text : wanted)
      for (std::string& name : parts_of(text, '\n')) names.insert(std::move(name));
    if (ranks.rank() != 0) return;
    for (const auto& [name, stored] : manifest_.tensors)
      check_input(names.contains(name), Exit::data,
                  "checkpoint {}: tensor {} {} has no place in this model{}", path_,
                  printable(name), stored.full,
                  why(names.contains(name.substr(0, name.find('@')))));
  });
}

void Checkpoint::load(const std::vector<Piece>& pieces, Unclaimed unclaimed) {
  together(*ranks_, [&] {
    for (const Piece& p : pieces) check_compatible(p);
  });
  if (unclaimed == Unclaimed::refuse) check_claimed(pieces, *ranks_);
  together(*ranks_, [&] {
    for (const Piece& p : pieces) {
      auto held = p.value.storage()->hold(Access::write);
      copy_(p.value.detach(), read(p.name, p.part, p.kind).view(p.value.shape()));
    }
  });
}

Tensor Checkpoint::read(const std::string& name, const Part& part, const std::string& kind) {
  check(problem(part).empty(), "checkpoint: tensor {}: {}", name, problem(part));
  const StoredTensor& tensor = at(name, kind, part);
  Tensor value = empty(held_shape(part), tensor.dtype, cpu);
  if (value.numel() == 0) return value;
  auto* to = static_cast<char*>(value.data());
  auto element = int64_t(size_of(tensor.dtype));
  int64_t filled = 0;
  for (const StoredPart& stored : tensor.parts) {
    std::unique_ptr<RunReader> reader;  // most parts share nothing with this one
    for_each_overlap(part, stored.part, [&](const Overlap& o) {
      if (!reader) {
        const nn::TensorFile& f = file(stored.file);
        const nn::TensorEntry* entry = f.find(stored.tensor);
        check_input(
            entry && entry->dtype == tensor.dtype && entry->shape.numel() == count(stored.part),
            Exit::data, "checkpoint {} changed while it was read: {}", path_, f.path());
        reader = std::make_unique<RunReader>(f, *entry);
      }
      reader->copy(o.from, o.count, to + o.to * element);
      filled += o.count;
    });
  }
  check(filled == value.numel(), "checkpoint: tensor {}: {} of {} elements stored", name, filled,
        value.numel());
  return value;
}

}  // namespace triax::parallel
