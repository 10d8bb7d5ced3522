#include "triax/parallel/checkpoint/manifest.h"

#include <set>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/core/tensor.h"

namespace triax::parallel {

namespace {

using Reader = nn::JsonReader;

constexpr const char* format_name = "triax checkpoint";
constexpr uint64_t format_version = 1;

std::string to_json(const StoredPart& stored) {
  const Part& p = stored.part;
  std::string j = fmt::format(R"({{"file":{},"tensor":{},"crc32c":{})", stored.file,
                              nn::quoted(stored.tensor), stored.crc32c);
  if (p.dim >= 0) j += fmt::format(R"(,"slice":[{},{},{}])", p.dim, p.begin, p.length);
  if (!is_whole_slice(p))
    j += fmt::format(R"(,"range":[{},{}])", p.flat_begin, p.flat_begin + count(p));
  return j + "}";
}

std::string to_json(const StoredTensor& t) {
  auto parts = transformed(t.parts, [](const StoredPart& p) { return to_json(p); });
  return fmt::format(R"({{"dtype":"{}","shape":[{}],"parts":[{}]}})", name(t.dtype),
                     join(t.full, ","), join(parts, ","));
}

bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." &&
         name != manifest_name && name.find('/') == name.npos && without_controls(name) == name;
}

Part read_part(const Reader& r, const Shape& full) {
  Part p{.full = full};
  if (r.has("slice")) {
    auto slice = r.at("slice").sizes(3);
    r.require(slice.size() == 3 && slice[0] < full.rank(), "has a wrong slice");
    p.dim = int(slice[0]);
    p.begin = slice[1];
    p.length = slice[2];
  }
  if (r.has("range")) {
    auto range = r.at("range").sizes(2);
    r.require(range.size() == 2, "has a wrong range");
    p.flat_begin = range[0];
    p.flat_end = range[1];
  }
  r.require(problem(p).empty(), "is wrong: " + problem(p));
  return p;
}

StoredTensor read_tensor(const Reader& r) {
  StoredTensor t;
  std::string dtype = r.at("dtype").text();
  int known = 0;
  while (known < dtype_count && dtype != name(DType(known))) ++known;
  r.require(known < dtype_count, "has unknown dtype " + printable(dtype));
  t.dtype = DType(known);
  t.full = Shape(r.at("shape").sizes(Shape::max_rank));
  r.require(checked_bytes(t.dtype, t.full).has_value(), "overflows in size");
  for (const Reader& part : r.at("parts").elements(SIZE_MAX))
    t.parts.push_back({.file = size_t(part.at("file").number(UINT32_MAX)),
                       .tensor = part.at("tensor").text(),
                       .crc32c = uint32_t(part.at("crc32c").number(UINT32_MAX)),
                       .part = read_part(part, t.full)});
  return t;
}

void check_references(const Manifest& m, const std::string& path) {
  std::set<std::string> files;
  for (const StoredFile& f : m.files) {
    check_input(is_plain_name(f.name), Exit::data,
                "checkpoint {} is damaged: {}, file {}; expected a plain file name", path,
                manifest_name, printable(f.name));
    check_input(files.insert(f.name).second, Exit::data,
                "checkpoint {} is damaged: {}, file {} is given twice", path, manifest_name,
                f.name);
  }
  std::set<std::pair<size_t, std::string>> used;
  auto free = transformed(m.files, &StoredFile::bytes);
  for (const auto& [name, t] : m.tensors)
    for (const StoredPart& p : t.parts) {
      uint64_t bytes = uint64_t(count(p.part)) * size_of(t.dtype);
      check_input(p.file < m.files.size() && used.insert({p.file, p.tensor}).second &&
                      bytes <= free[p.file],
                  Exit::data,
                  "checkpoint {} is damaged: {}, tensor {} lies in file {}, {}, which does not "
                  "exist, is used already or is too small",
                  path, manifest_name, printable(name), p.file, printable(p.tensor));
      free[p.file] -= bytes;
    }
}

}  // namespace

std::string logical_name(const std::string& name, const std::string& kind) {
  check(name.find('@') == name.npos && kind.find('@') == kind.npos,
        "checkpoint: tensor {}, kind {}: an @ is not possible in names", name, kind);
  return kind.empty() ? name : name + "@" + kind;
}

int64_t whole_number(const std::string& text, const std::string& where) {
  int64_t number = -1;
  check_input(parse_number(text, number) && number >= 0 && number <= int64_t(1) << 53, Exit::data,
              "{} is `{}`; expected a whole number of at most 2^53", where, printable(text));
  return number;
}

std::string seal(const std::string& members) {
  return fmt::format("{{\"crc32c\":\"{:08x}\",", crc32c(members.data(), members.size())) + members;
}

std::string to_text(const Manifest& m) {
  std::vector<std::string> state, files, tensors;
  for (const auto& [key, value] : m.state)
    state.push_back(nn::quoted(key) + ":" + nn::quoted(value));
  for (const StoredFile& f : m.files)
    files.push_back(fmt::format(R"({{"name":{},"bytes":{},"header_crc32c":{}}})",
                                nn::quoted(f.name), f.bytes, f.header));
  for (const auto& [key, t] : m.tensors) tensors.push_back(nn::quoted(key) + ":" + to_json(t));
  return seal(fmt::format(
      R"("format":"{}","version":{},"step":{},"state":{{{}}},"files":[{}],"tensors":{{{}}}}})",
      format_name, format_version, m.step, join(state, ","), join(files, ","), join(tensors, ",")));
}

Manifest parse_manifest(const std::string& text, const std::string& path) {
  const size_t sealed = seal("").size();
  check_input(text.size() >= sealed && text == seal(text.substr(sealed)), Exit::data,
              "checkpoint {} is damaged: {}, checksum differs", path, manifest_name);
  constexpr int deepest = 8;
  Reader all(text, fmt::format("checkpoint {} is damaged: {}", path, manifest_name), "the manifest",
             deepest);
  std::string format = all.at("format").text();
  uint64_t version = all.at("version").number(UINT32_MAX);
  check_input(format == format_name && version == format_version, Exit::data,
              "checkpoint {}: format {}, version {}; this build reads {}, version {}", path,
              printable(format), version, format_name, format_version);

  Manifest m;
  m.step = all.at("step").size();
  for (const auto& [key, value] : all.at("state").members()) m.state[key] = value.text();
  for (const Reader& f : all.at("files").elements(SIZE_MAX))
    m.files.push_back({.name = f.at("name").text(),
                       .bytes = uint64_t(f.at("bytes").size()),
                       .header = uint32_t(f.at("header_crc32c").number(UINT32_MAX))});
  for (const auto& [key, t] : all.at("tensors").members()) m.tensors[key] = read_tensor(t);
  check_references(m, path);
  return m;
}

std::string incomplete(const Manifest& m) {
  for (const auto& [name, t] : m.tensors) {
    Tiling tiles = tiling(t.full, transformed(t.parts, &StoredPart::part));
    if (!tiles.exact)
      return fmt::format("tensor {} {}, element {} is missing or stored twice", printable(name),
                         t.full, tiles.at);
  }
  return "";
}

}  // namespace triax::parallel
