#include "nn/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "core/files.h"

namespace triax::nn {

namespace {

using nlohmann::json;

constexpr const char* codes[dtype_count] = {"F32", "F64", "F16", "BF16", "I32", "I64", "U8"};

// Accepts exactly the grammar of a header while the JSON is being read, so that nothing is built
// that a header does not hold: no recursion, and memory in proportion to the text. A callback that
// returns false stops the parser; `error` then says why.
class HeaderReader final : public nlohmann::json_sax<json> {
 public:
  TensorHeader header;
  std::string error;

  bool start_object(size_t) override {
    if (at_ == At::file) return go(At::names);
    if (at_ != At::entry) return refuse("an object where none belongs");
    return go(is_metadata_ ? At::metadata : At::tensor);
  }
  bool key(std::string& text) override {
    if (at_ == At::names) return begin_entry(text);
    if (at_ == At::tensor) return begin_field(text);
    metadata_key_ = text;  // the parser calls this only inside of objects
    at_ = At::metadata_text;
    return !header.metadata.contains(text) || refuse("metadata key given twice");
  }
  bool string(std::string& text) override {
    if (at_ == At::metadata_text) {
      header.metadata.emplace(metadata_key_, text);
      return go(At::metadata);
    }
    if (at_ != At::dtype) return refuse("a string where none belongs");
    auto code = std::find(std::begin(codes), std::end(codes), text);
    if (code == std::end(codes)) return refuse("unknown dtype " + printable(text));
    entry().dtype = DType(code - std::begin(codes));
    return go(At::tensor);
  }
  bool start_array(size_t) override {
    if (at_ == At::shape_open) return go(At::shape);
    if (at_ == At::offsets_open) return go(At::offsets);
    return refuse("an array where none belongs");
  }
  bool number_unsigned(uint64_t n) override {
    if (n > uint64_t(INT64_MAX)) return refuse("a number beyond 2^63");
    if (at_ == At::shape) {
      if (entry().shape.rank() == Shape::max_rank) return refuse("more than 8 dims");
      entry().shape.push_back(int64_t(n));
      return true;
    }
    if (at_ != At::offsets || offsets_ == 2) return refuse("a number where none belongs");
    (offsets_++ == 0 ? entry().begin : entry().end) = n;
    return true;
  }
  bool end_array() override {
    if (at_ == At::offsets && offsets_ != 2) return refuse("data_offsets are not two numbers");
    return go(At::tensor);
  }
  bool end_object() override {
    if (at_ == At::names) return go(At::done);
    if (at_ == At::tensor && fields_.size() != 3)
      return refuse("not all of dtype, shape and data_offsets are given");
    return go(At::names);
  }
  bool null() override { return refuse("null"); }
  bool boolean(bool) override { return refuse("a truth value"); }
  bool number_integer(int64_t) override { return refuse("a negative number"); }
  bool number_float(double, const std::string&) override { return refuse("a fraction"); }
  bool binary(json::binary_t&) override { return refuse("binary data"); }
  bool parse_error(size_t byte, const std::string&, const json::exception&) override {
    return refuse(fmt::format("not JSON at byte {}", byte));
  }

 private:
  enum class At {
    file,
    names,
    entry,
    metadata,
    metadata_text,
    tensor,
    dtype,
    shape_open,
    shape,
    offsets_open,
    offsets,
    done
  };

  TensorEntry& entry() { return header.entries.back(); }
  bool go(At next) {
    at_ = next;
    return true;
  }
  bool refuse(const std::string& what) {
    bool inside = at_ != At::file && at_ != At::names && at_ != At::done;
    if (!inside) error = what;
    else if (is_metadata_) error = "__metadata__: " + what;
    else error = fmt::format("tensor {}: {}", printable(entry().name), what);
    return false;
  }
  bool begin_entry(const std::string& name) {
    at_ = At::entry;
    is_metadata_ = name == "__metadata__";
    fields_.clear();
    offsets_ = 0;
    bool fresh = names_.insert(name).second;
    if (!is_metadata_) header.entries.push_back({.name = name});
    return fresh || refuse("named twice");
  }
  bool begin_field(const std::string& field) {
    if (!fields_.insert(field).second) return refuse(printable(field) + " is given twice");
    if (field == "dtype") return go(At::dtype);
    if (field == "shape") return go(At::shape_open);
    if (field == "data_offsets") return go(At::offsets_open);
    return refuse("unknown field " + printable(field));
  }

  At at_ = At::file;
  bool is_metadata_ = false;
  int offsets_ = 0;
  std::string metadata_key_;
  std::set<std::string> names_, fields_;
};

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

std::optional<uint64_t> checked_bytes(DType dtype, const Shape& shape) {
  int64_t bytes = int64_t(size_of(dtype));
  bool none = false;
  for (int64_t size : shape) {  // a size of 0 excuses nothing: strides are products too
    none = none || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return {};
  }
  return none ? 0 : uint64_t(bytes);
}

TensorHeader parse_header(std::string_view text, uint64_t data_bytes, const std::string& path) {
  // The parser would skip a byte order mark and take a zero byte for the end of the text.
  check_input(text.starts_with('{'), Exit::data,
              "safetensors: {}: the header does not start with an open brace", path);
  check_input(text.find('\0') == text.npos, Exit::data,
              "safetensors: {}: the header holds a zero byte", path);
  HeaderReader reader;
  bool good = json::sax_parse(text, &reader);
  check_input(good, Exit::data, "safetensors: {}: damaged header: {}", path, reader.error);

  auto& entries = reader.header.entries;
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
  return std::move(reader.header);
}

std::string format_header(const TensorHeader& header) {
  std::vector<std::string> members;
  std::set<std::string> taken = {"__metadata__"};
  try {
    if (!header.metadata.empty())
      members.push_back("\"__metadata__\":" + json(header.metadata).dump());
    for (const TensorEntry& e : header.entries) {
      check(taken.insert(e.name).second,
            "safetensors: a tensor named {}, which is taken or reserved", printable(e.name));
      members.push_back(fmt::format(
          R"({}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", json(e.name).dump(),
          codes[int(e.dtype)], fmt::join(e.shape.begin(), e.shape.end(), ","), e.begin, e.end));
    }
  } catch (const json::exception&) {
    fail(Exit::internal, "safetensors: a tensor's name or a metadata text is not UTF-8");
  }
  std::string text = fmt::format("{{{}}}", fmt::join(members, ","));
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return text;
}

}  // namespace triax::nn
