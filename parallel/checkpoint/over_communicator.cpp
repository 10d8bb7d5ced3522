#include "parallel/checkpoint/over_communicator.h"

#include <cstring>

namespace triax::parallel {
namespace {

Tensor bytes_of(const std::string& text, int64_t length) {
  Tensor t = zeros({length}, u8, cpu);
  if (!text.empty()) std::memcpy(t.data(), text.data(), text.size());
  return t;
}

std::string text_of(const Tensor& bytes, int64_t begin, int64_t length) {
  return std::string(static_cast<const char*>(bytes.data()) + begin, static_cast<size_t>(length));
}

}  // namespace

std::string OverCommunicator::broadcast(const std::string& text) {
  Tensor length = full({1}, double(text.size()), i64, cpu);
  ranks_.broadcast(length, 0).wait();
  auto n = int64_t(length.item());
  Tensor bytes = rank() == 0 ? bytes_of(text, n) : zeros({n}, u8, cpu);
  ranks_.broadcast(bytes, 0).wait();
  return text_of(bytes, 0, n);
}

std::vector<std::string> OverCommunicator::gather(const std::string& text) {
  Tensor length = full({1}, double(text.size()), i64, cpu), lengths = zeros({size()}, i64, cpu);
  ranks_.all_gather(length, lengths).wait();
  auto sizes = lengths.to_host<int64_t>();
  int64_t longest = 0;
  for (int64_t n : sizes) longest = std::max(longest, n);
  Tensor all = zeros({size() * longest}, u8, cpu);
  ranks_.gather(bytes_of(text, longest), all, 0).wait();
  std::vector<std::string> texts;
  if (rank() == 0)
    for (int r = 0; r < size(); ++r) texts.push_back(text_of(all, r * longest, sizes[size_t(r)]));
  return texts;
}

}  // namespace triax::parallel
