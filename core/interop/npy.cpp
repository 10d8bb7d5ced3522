#include "triax/core/interop/npy.h"

#include <cstring>
#include <regex>

#include "triax/core/check.h"
#include "triax/core/io/files.h"

namespace triax {
namespace {

constexpr char magic[] = "\x93NUMPY";
constexpr size_t magic_bytes = 6;
constexpr uint32_t longest_header = 1 << 12;  // one of 8 dims has 240 bytes

/// Returns NumPy's name of a dtype, little-endian; empty if it has none.
std::string_view descr_of(DType t) {
  constexpr std::string_view names[dtype_count] = {"<f4", "<f8", "<f2", "", "<i4", "<i8", "|u1"};
  return names[int(t)];
}

DType dtype_named(const std::string& descr, const std::string& path) {
  if (descr == "|b1") return u8;
  for (int t = 0; t < dtype_count; ++t)
    if (!descr.empty() && descr == descr_of(DType(t))) return DType(t);
  fail(Exit::data, "npy: {}: dtype `{}`; expected <f2, <f4, <f8, <i4, <i8, |u1 or |b1", path,
       printable(descr));
}

/// Returns the header's dictionary, a literal of Python, and where the values begin.
std::pair<std::string, uint64_t> header_of(const File& file) {
  uint8_t start[12] = {};
  check_input(file.size() >= sizeof start, Exit::data, "npy: {}: {} bytes; expected a header",
              file.path(), file.size());
  file.read_at(0, start, sizeof start);
  check_input(std::memcmp(start, magic, magic_bytes) == 0 && start[6] >= 1 && start[6] <= 3,
              Exit::data, "npy: {}: no array of NumPy, version 1 to 3", file.path());
  bool wide = start[6] > 1;
  uint32_t length = start[8] | uint32_t(start[9]) << 8;
  if (wide) length |= uint32_t(start[10]) << 16 | uint32_t(start[11]) << 24;
  uint64_t at = wide ? 12 : 10;
  check_input(length <= longest_header && at + length <= file.size(), Exit::data,
              "npy: {}: a header of {} bytes in a file of {}", file.path(), length, file.size());
  std::string header(length, ' ');
  file.read_at(at, header.data(), length);
  return {header, at + length};
}

std::string found(const std::string& header, const char* pattern, const std::string& path) {
  std::smatch match;
  check_input(std::regex_search(header, match, std::regex(pattern)), Exit::data,
              "npy: {}: header `{}`; expected descr, fortran_order and shape", path,
              printable(header));
  return match[1];
}

Shape shape_in(const std::string& header, const std::string& path) {
  Shape shape;
  for (const std::string& part : parts_of(found(header, R"('shape': *\(([^)]*)\))", path), ',')) {
    size_t begin = part.find_first_not_of(' ');
    if (begin == part.npos) continue;
    int64_t size = -1;
    check_input(
        parse_number(part.substr(begin), size) && size >= 0 && shape.rank() < Shape::max_rank,
        Exit::data, "npy: {}: shape with `{}`; expected at most {} sizes", path, printable(part),
        Shape::max_rank);
    shape.push_back(size);
  }
  return shape;
}

}  // namespace

Tensor load_npy(const std::string& path) {
  File file = disk().open(path);
  auto [header, begin] = header_of(file);
  DType dtype = dtype_named(found(header, "'descr': *'([^']*)'", path), path);
  Shape shape = shape_in(header, path);
  bool columns = found(header, "'fortran_order': *(True|False)", path) == "True";
  check_input(!columns || shape.rank() < 2, Exit::data,
              "npy: {}: in Fortran's order\n  Save numpy.ascontiguousarray of it.", path);
  std::optional<uint64_t> bytes = checked_bytes(dtype, shape);
  check_input(bytes && file.size() - begin == *bytes, Exit::data,
              "npy: {}: {} bytes of values; expected those of {} {}", path, file.size() - begin,
              shape, dtype);
  Tensor x = empty(shape, dtype, cpu);
  if (*bytes > 0) file.read_at(begin, x.data(), *bytes);
  return x;
}

void save_npy(const std::string& path, const Tensor& x) {
  check_input(!descr_of(x.dtype()).empty(), Exit::config,
              "npy: {}; NumPy has no such dtype: save x.to(f32)", x);
  std::string shape;
  for (int64_t size : x.shape()) shape += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}",
                                   descr_of(x.dtype()), shape);
  header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');  // values begin at 64 bytes
  header += '\n';
  std::string start(magic, magic_bytes);
  start += {1, 0, char(header.size() & 255), char(header.size() >> 8)};
  Tensor values = x.detach().to(cpu).contiguous();
  disk().replace(path, [&](const std::string& name) {
    File file = disk().create(name);
    file.write((start + header).data(), start.size() + header.size());
    file.write(values.data(), values.bytes());
    file.sync();
  });
}

}  // namespace triax
