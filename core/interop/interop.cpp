#include "triax/core/interop/interop.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "triax/core/backend.h"
#include "triax/core/check.h"

namespace triax {
namespace {

/// Hands out the caller's memory, once.
class Borrowed : public Allocator {
 public:
  Borrowed(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
  ~Borrowed() override {
    if (release_) release_();  // there were no bytes
  }
  void* allocate(size_t bytes) override {
    check(data_ != nullptr, "borrow: {} bytes that went back to their owner", bytes);
    return std::exchange(data_, nullptr);
  }
  void deallocate(void*, size_t) noexcept override {
    if (release_) std::exchange(release_, {})();
  }

 private:
  void* data_;
  std::function<void()> release_;
};

/// Appends the values of dims from `dim` on; `values` are those that follow.
template <class T>
void append(std::string& text, const T*& values, const Shape& shape, int dim, bool all) {
  if (dim == shape.rank()) {
    text += fmt::format(std::is_integral_v<T> ? "{}" : "{:g}", *values++);
    return;
  }
  constexpr int64_t edge = 3;
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  auto breaks = size_t(shape.rank() - dim - 1), indent = breaks > 0 ? size_t(dim) + 1 : 1;
  std::string between = "," + std::string(breaks, '\n') + std::string(indent, ' ');
  text += "[";
  for (int64_t i = 0; i < shape[dim]; ++i) {
    if (i > 0) text += between;
    if (!all && i == edge && shape[dim] > 2 * edge) {
      text += "..." + between;
      values += inner * (shape[dim] - 2 * edge);
      i = shape[dim] - edge;
    }
    append(text, values, shape, dim + 1, all);
  }
  text += "]";
}

}  // namespace

Tensor borrow(void* data, const Shape& shape, DType dtype, Device device,
              std::function<void()> release) {
  std::optional<uint64_t> bytes = checked_bytes(dtype, shape);
  bool positive = std::ranges::all_of(shape, [](int64_t size) { return size >= 0; });
  check(bytes && positive && (data || *bytes == 0),
        "borrow: {} for {} of {}; expected their memory", data ? "memory" : "null", shape, dtype);
  check(reinterpret_cast<uintptr_t>(data) % size_of(dtype) == 0,
        "borrow: memory for {} that begins within an element; expected a multiple of {} bytes",
        dtype, size_of(dtype));
  if (release && device.kind == Device::Kind::cuda)
    release = [then = std::move(release), device] { backend(device).mark()->wait(), then(); };
  auto owner = std::make_shared<Borrowed>(data, std::move(release));
  return {std::make_shared<Storage>(*bytes, device, owner), dtype, shape,
          contiguous_strides(shape)};
}

std::string to_string(const Tensor& x) {
  std::string text;
  auto print = [&]<class T>(const std::vector<T>& values) {
    const T* at = values.data();
    append(text, at, x.shape(), 0, x.numel() <= 1000);
  };
  Tensor here = x.detach().to(cpu);
  if (is_float(x.dtype())) print(here.to(f64).to_host<double>());
  else print(here.to(i64).to_host<int64_t>());
  return text;
}

}  // namespace triax
