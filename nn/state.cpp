#include "triax/nn/state.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "triax/core/check.h"
#include "triax/core/io/checksum.h"

namespace triax::nn {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the format is little-endian");

namespace {

constexpr uint64_t length_bytes = 8;

// Returns the order of the file: biggest elements first, which aligns every tensor to its element.
std::vector<size_t> file_order(const std::vector<NamedTensor>& tensors) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    size_t size_a = size_of(tensors[a].value.dtype()), size_b = size_of(tensors[b].value.dtype());
    return size_a != size_b ? size_a > size_b : tensors[a].name < tensors[b].name;
  });
  return order;
}

}  // namespace

Checksums write_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                        const Metadata& metadata, const Files& files) {
  std::vector<size_t> order = file_order(tensors);
  TensorHeader header{.entries = {}, .metadata = metadata};
  uint64_t end = 0;
  for (size_t i : order) {
    const auto& [name, value] = tensors[i];
    uint64_t begin = end;
    end += value.bytes();
    header.entries.push_back({name, value.dtype(), value.shape(), begin, end});
  }
  std::string json = format_header(header);
  check(json.size() <= max_header_bytes, "safetensors: {}: a header of {} bytes; at most {}", path,
        json.size(), max_header_bytes);

  uint64_t length = json.size();
  std::string head(length_bytes, '\0');
  std::memcpy(head.data(), &length, length_bytes);
  head += json;

  Checksums sums;
  sums.file_bytes = head.size() + end;
  sums.header = crc32c(head.data(), head.size());
  sums.tensors.resize(tensors.size());
  File file = files.create(path);
  file.write(head.data(), head.size());
  for (size_t i : order) {
    auto held = tensors[i].value.storage()->hold(Access::read);
    Tensor value = tensors[i].value.detach().to(cpu).contiguous();
    if (value.bytes() > 0) file.write(value.data(), value.bytes());
    sums.tensors[i] = value.bytes() > 0 ? crc32c(value.data(), value.bytes()) : 0;
  }
  file.sync();
  return sums;
}

void save_tensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                  const Metadata& metadata, const Files& files) {
  files.replace(path,
                [&](const std::string& name) { write_tensors(name, tensors, metadata, files); });
}

std::vector<NamedTensor> load_tensors(const std::string& path, const Files& files) {
  TensorFile file(path, files);
  std::vector<NamedTensor> tensors;
  for (const TensorEntry& e : file.entries()) tensors.push_back({e.name, file.read(e.name)});
  return tensors;
}

TensorFile::TensorFile(const std::string& path, const Files& files, Links links)
    : file_(files.open(path, links)), file_bytes_(file_.size()) {
  check_input(file_bytes_ >= length_bytes, Exit::data,
              "safetensors: {}: {} bytes; expected at least the {} of the header's length", path,
              file_bytes_, length_bytes);
  uint64_t length;
  file_.read_at(0, &length, length_bytes);
  check_input(length <= file_bytes_ - length_bytes && length <= max_header_bytes, Exit::data,
              "safetensors: {}: a header of {} bytes in a file of {}; at most {}", path, length,
              file_bytes_, std::min(file_bytes_ - length_bytes, max_header_bytes));
  std::string json(length, '\0');
  file_.read_at(length_bytes, json.data(), length);
  data_begin_ = length_bytes + length;
  header_checksum_ = crc32c(json.data(), length, crc32c(&length, length_bytes));
  header_ = parse_header(json, file_bytes_ - data_begin_, path);
  for (size_t i = 0; i < header_.entries.size(); ++i) index_[header_.entries[i].name] = i;
}

const TensorEntry* TensorFile::find(const std::string& name) const {
  auto found = index_.find(name);
  return found == index_.end() ? nullptr : &header_.entries[found->second];
}

const TensorEntry& TensorFile::at(const std::string& name) const {
  const TensorEntry* entry = find(name);
  check_input(entry != nullptr, Exit::data, "safetensors: {}: no tensor {}", path(),
              printable(name));
  return *entry;
}

void TensorFile::read_elements(const TensorEntry& entry, int64_t begin, int64_t count,
                               void* to) const {
  check(begin >= 0 && count >= 0 && begin <= entry.shape.numel() - count,
        "safetensors: {}, tensor {}: elements [{}, {}) of {}", path(), printable(entry.name), begin,
        begin + count, entry.shape);
  uint64_t element = size_of(entry.dtype);
  file_.read_at(data_begin_ + entry.begin + uint64_t(begin) * element, to, size_t(count) * element);
}

Tensor TensorFile::read(const std::string& name) const {
  const TensorEntry& entry = at(name);
  Tensor x = empty(entry.shape, entry.dtype, cpu);
  if (x.numel() > 0) read_elements(entry, 0, x.numel(), x.data());
  return x;
}

uint32_t TensorFile::checksum(const TensorEntry& entry) const {
  constexpr uint64_t window = uint64_t(4) << 20;
  std::string buffer(std::min(window, entry.bytes()), '\0');
  uint32_t crc = 0;
  for (uint64_t at = 0; at < entry.bytes(); at += window) {
    size_t bytes = std::min(window, entry.bytes() - at);
    file_.read_at(data_begin_ + entry.begin + at, buffer.data(), bytes);
    crc = crc32c(buffer.data(), bytes, crc);
  }
  return crc;
}

}  // namespace triax::nn
