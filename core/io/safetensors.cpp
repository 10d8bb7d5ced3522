#include "triax/core/io/safetensors.h"

#include <algorithm>
#include <set>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/core/io/json.h"
#include "triax/core/tensor.h"

namespace triax::nn {

namespace {

constexpr const char* metadata_name = "__metadata__";
constexpr const char* codes[dtype_count] = {"F32", "F64", "F16", "BF16", "I32", "I64", "U8"};

TensorEntry read_entry(const std::string& name, const JsonReader& r) {
  for (const auto& [field, value] : r.members())
    r.require(field == "dtype" || field == "shape" || field == "data_offsets",
              "has an unknown field " + printable(field));
  std::string dtype = r.at("dtype").text();
  if (dtype == "BOOL") dtype = codes[int(u8)];  // a byte each: masks in files of others
  auto code = std::find(std::begin(codes), std::end(codes), dtype);
  r.require(code != std::end(codes), "has unknown dtype " + printable(dtype));
  auto offsets = r.at("data_offsets").sizes(2);
  r.require(offsets.size() == 2, "has data_offsets that are not two numbers");
  return {name, DType(code - std::begin(codes)), Shape(r.at("shape").sizes(Shape::max_rank)),
          uint64_t(offsets[0]), uint64_t(offsets[1])};
}

void check_bytes(const TensorEntry& e, const std::string& path) {
  auto bytes = checked_bytes(e.dtype, e.shape);
  check_input(bytes.has_value(), Exit::data,
              "safetensors: {}, tensor {}: the size of {} {} overflows", path, printable(e.name),
              e.dtype, e.shape);
  check_input(e.begin <= e.end && e.bytes() == *bytes, Exit::data,
              "safetensors: {}, tensor {}: data_offsets [{}, {}] for {} {}; expected {} bytes",
              path, printable(e.name), e.begin, e.end, e.dtype, e.shape, *bytes);
}

}  // namespace

TensorHeader parse_header(std::string_view text, uint64_t data_bytes, const std::string& path) {
  constexpr int deepest = 3;  // the file, a tensor, its shape
  TensorHeader header;
  auto& entries = header.entries;
  for (const auto& [name, value] :
       JsonReader(text, fmt::format("safetensors: {}: the header", path), "the file", deepest)
           .members())
    if (name != metadata_name) entries.push_back(read_entry(name, value));
    else
      for (const auto& [key, word] : value.members()) header.metadata[key] = word.text();
  for (const TensorEntry& e : entries) check_bytes(e, path);
  std::stable_sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t next = 0;
  for (const TensorEntry& e : entries) {
    check_input(e.begin == next, Exit::data,
                "safetensors: {}, tensor {}: its data begins at byte {}; expected {}, where the "
                "one before ends",
                path, printable(e.name), e.begin, next);
    next = e.end;
  }
  check_input(next == data_bytes, Exit::data,
              "safetensors: {}: {} bytes of data; the header describes {}", path, data_bytes, next);
  return header;
}

std::string format_header(const TensorHeader& header) {
  std::vector<std::string> members;
  std::set<std::string> taken = {metadata_name};
  for (const auto& [key, word] : header.metadata)
    members.push_back(nn::quoted(key) + ":" + nn::quoted(word));
  if (!members.empty())
    members = {fmt::format("{}:{{{}}}", nn::quoted(metadata_name), join(members, ","))};
  for (const TensorEntry& e : header.entries) {
    check(taken.insert(e.name).second, "safetensors: a tensor named {}, which is taken or reserved",
          printable(e.name));
    members.push_back(fmt::format(R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                                  nn::quoted(e.name), codes[int(e.dtype)], join(e.shape, ","),
                                  e.begin, e.end));
  }
  std::string text = fmt::format("{{{}}}", join(members, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace triax::nn
