#include "triax/core/interop/interop.h"

#include <memory>
#include <utility>
#include <vector>

#include "triax/core/check.h"

namespace triax {
namespace {

/// Hands out the caller's memory, once.
class Borrowed : public Allocator {
 public:
  Borrowed(void* data, std::function<void()> release) : data_(data), release_(std::move(release)) {}
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
void append(std::string& text, const double*& values, const Shape& shape, int dim, bool all) {
  if (dim == shape.rank()) {
    text += fmt::format("{:g}", *values++);
    return;
  }
  constexpr int64_t edge = 3;
  int64_t inner = 1;
  for (int d = dim + 1; d < shape.rank(); ++d) inner *= shape[d];
  const char* newline = "\n\n\n\n\n\n\n";
  std::string between =
      "," + (dim + 1 == shape.rank() ? std::string(" ")
                                     : std::string(newline, size_t(shape.rank() - dim - 1)) +
                                           std::string(size_t(dim) + 1, ' '));
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
  check(bytes && (data || *bytes == 0), "borrow: null for {} of {}; expected their memory", shape,
        dtype);
  Shape strides = shape;
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) stride *= std::exchange(strides[d], stride);
  auto owner = std::make_shared<Borrowed>(data, std::move(release));
  return {std::make_shared<Storage>(*bytes, device, owner), dtype, shape, strides};
}

std::string to_string(const Tensor& x) {
  std::vector<double> values = x.detach().to(cpu).to(f64).to_host<double>();
  std::string text;
  const double* at = values.data();
  append(text, at, x.shape(), 0, x.numel() <= 1000);
  return text;
}

}  // namespace triax
