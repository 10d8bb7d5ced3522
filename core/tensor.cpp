#include "triax/core/tensor.h"

#include <algorithm>
#include <cstring>

#include "triax/core/backend.h"
#include "triax/core/check.h"
#include "triax/core/noted_storages.h"

namespace triax {

struct Tensor::Impl {
  std::shared_ptr<Storage> storage;
  DType dtype;
  Shape shape, strides;
  int64_t offset;
  int64_t numel;
  bool contiguous;
  std::shared_ptr<autograd::Meta> meta;
  bool leaf = false;
};

namespace {

/// Refuses a tensor with a history: views and copies made here have none.
void check_no_history(const char* what, const Tensor& x) {
  check(!x.meta(),
        "tensor: a {} of {}, which has a gradient history; use the functions of autograd/ops.h, "
        "such as cast() or move_to() for to(), or detach() first",
        what, x);
}

void check_made_by_no_op(const char* op, const Tensor& x) {
  check(!x.meta() || x.is_leaf(),
        "{}: {} has a gradient history, which would not see this; expected detach() of it, or ops "
        "such as where() and concat() that make a new tensor",
        op, x);
}

bool row_major(const Shape& shape, const Shape& strides) {
  int64_t step = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (shape[d] != 1 && strides[d] != step) return false;
    step *= shape[d];
  }
  return true;
}

}  // namespace

Tensor::Tensor(std::shared_ptr<Storage> storage, DType dtype, const Shape& shape,
               const Shape& strides, int64_t offset) {
  int64_t n = shape.numel();
  bool contiguous = n == 0 || row_major(shape, strides);
  impl_ = std::make_shared<Impl>(
      Impl{std::move(storage), dtype, shape, strides, offset, n, contiguous, nullptr});
}

Tensor::Impl& Tensor::impl() const {
  check(defined(), "tensor: used while undefined");
  return *impl_;
}

const Shape& Tensor::shape() const { return impl().shape; }
const Shape& Tensor::strides() const { return impl().strides; }
int64_t Tensor::size(int dim) const { return shape()[dim]; }
int Tensor::rank() const { return shape().rank(); }
int64_t Tensor::numel() const { return impl().numel; }
DType Tensor::dtype() const { return impl().dtype; }
Device Tensor::device() const { return impl().storage->device(); }
bool Tensor::is_contiguous() const { return impl().contiguous; }
size_t Tensor::bytes() const { return size_t(impl().numel) * size_of(impl().dtype); }
int64_t Tensor::offset() const { return impl().offset; }
void* Tensor::data() const {
  auto* first = static_cast<char*>(impl().storage->data());
  return first + impl().offset * int64_t(size_of(impl().dtype));
}
const std::shared_ptr<Storage>& Tensor::storage() const { return impl().storage; }
std::shared_ptr<autograd::Meta>& Tensor::meta() const { return impl().meta; }
bool& Tensor::is_leaf() const { return impl().leaf; }
bool Tensor::exclusive() const { return impl_.use_count() == 1 && impl().storage.use_count() == 1; }

void Tensor::require(DType expected) const {
  check(impl().dtype == expected, "tensor: {} read as {}", *this, expected);
}

Tensor Tensor::reshaped(const Shape& shape, const Shape& strides, int64_t offset) const {
  check_no_history("view", *this);
  return Tensor(impl().storage, impl().dtype, shape, strides, offset);
}

Tensor Tensor::view(Shape to) const {
  check(is_contiguous(), "view: {} is not contiguous; take contiguous(x) first", *this);
  int open = -1;
  int64_t known = 1;
  for (int d = 0; d < to.rank(); ++d) {
    check(to[d] >= 0 || (to[d] == -1 && open < 0), "view: shape {}; at most one size may be -1",
          to);
    if (to[d] == -1) open = d;
    else known *= to[d];
  }
  if (open >= 0 && known > 0) to[open] = numel() / known;
  check(to.numel() == numel(), "view: {} elements of {} do not fill {}", numel(), shape(), to);
  return reshaped(to, contiguous_strides(to), impl().offset);
}

Tensor Tensor::transpose(int dim0, int dim1) const {
  Shape s = shape(), t = strides();
  std::swap(s[dim0], s[dim1]);
  std::swap(t[dim0], t[dim1]);
  return reshaped(s, t, impl().offset);
}

Tensor Tensor::narrow(int dim, int64_t begin, int64_t length) const {
  Shape s = shape();
  check(begin >= 0 && length >= 0 && length <= s[dim] && begin <= s[dim] - length,
        "narrow: {} elements from {} of dim {} of {}; expected a range within [0, {})", length,
        begin, dim, s, s[dim]);
  s[dim] = length;
  return reshaped(s, strides(), impl().offset + begin * strides()[dim]);
}

Tensor Tensor::expand(const Shape& to) const {
  check(broadcast("expand", shape(), to) == to, "expand: {} does not stretch to {}", shape(), to);
  Shape t = to;
  for (int d = 1; d <= to.rank(); ++d)
    t[-d] = d <= rank() && size(-d) == to[-d] ? strides()[-d] : 0;
  return reshaped(to, t, impl().offset);
}

Tensor Tensor::contiguous() const { return is_contiguous() ? *this : clone(*this); }

Tensor Tensor::to(DType wanted) const {
  check_no_history("conversion", *this);
  if (wanted == dtype()) return *this;
  Tensor y = empty(shape(), wanted, device());
  copy_(y, *this);
  return y;
}

Tensor Tensor::to(Device wanted) const {
  check_no_history("move", *this);
  if (wanted == device()) return *this;
  Tensor y = empty(shape(), dtype(), wanted);
  copy_(y, *this);
  return y;
}

std::weak_ptr<const void> Tensor::handle() const { return impl_; }

Tensor Tensor::detach() const {
  return Tensor(impl().storage, impl().dtype, impl().shape, impl().strides, impl().offset);
}

double Tensor::item() const {
  check(numel() == 1, "item: {} has {} elements; expected 1", *this, numel());
  Tensor one = detach().to(cpu).to(DType::f64);
  return *one.data<double>();
}

void Tensor::copy_to_host(void* to) const {
  Tensor from = detach().to(cpu).contiguous();
  if (bytes()) std::memcpy(to, from.data(), bytes());
}

std::string str(const Tensor& x) {
  if (!x.defined()) return "an undefined tensor";
  return fmt::format("{} {} on {}", x.shape(), x.dtype(), x.device());
}

std::optional<uint64_t> checked_bytes(DType dtype, const Shape& shape) {
  int64_t bytes = int64_t(size_of(dtype));
  bool none = false;
  for (int64_t size : shape) {  // a size of 0 excuses nothing: strides are products too
    none = none || size == 0;
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes)) return {};
  }
  return none ? 0 : uint64_t(bytes);
}

Tensor empty(const Shape& shape, DType dtype, Device device) {
  for (int64_t s : shape) check(s >= 0, "tensor: negative size in shape {}", shape);
  auto bytes = checked_bytes(dtype, shape);
  check_input(bytes.has_value(), Exit::memory,
              "tensor: shape {} of {} has more bytes than can be counted", shape, dtype);
  auto storage = make_storage(*bytes, device, backend(device).allocator());
  return Tensor(std::move(storage), dtype, shape, contiguous_strides(shape));
}
Tensor empty_like(const Tensor& x) { return empty(x.shape(), x.dtype(), x.device()); }
Tensor zeros(const Shape& shape, DType dtype, Device device) {
  return full(shape, 0, dtype, device);
}
Tensor zeros_like(const Tensor& x) { return zeros(x.shape(), x.dtype(), x.device()); }
Tensor full(const Shape& shape, double value, DType dtype, Device device) {
  Tensor x = empty(shape, dtype, device);
  fill_(x, value);
  return x;
}
Tensor clone(const Tensor& x) {
  check_no_history("copy", x);
  Tensor y = empty_like(x);
  copy_(y, x);
  return y;
}

Tensor from_bytes(const void* values, size_t count, const Shape& shape, DType dtype,
                  Device device) {
  check(int64_t(count) == shape.numel(), "from_host: {} values for shape {}; expected {}", count,
        shape, shape.numel());
  Tensor x = empty(shape, dtype, cpu);
  if (count) std::memcpy(x.data(), values, x.bytes());
  return x.to(device);
}

void copy_(const Tensor& to, const Tensor& from) {
  for (auto* x : {&from, &to}) check_made_by_no_op("copy_", *x);
  check(to.shape() == from.shape(), "copy: from {} to {}; shapes must be equal", from, to);
  if (to.numel() == 0) return;
  Device on = to.device().kind == Device::Kind::cpu ? from.device() : to.device();
  to.storage()->note_write();
  backend(on).copy(from, to);  // a GPU's backend knows both sides
}

void fill_(const Tensor& x, double value) {
  check_made_by_no_op("fill_", x);
  if (x.numel() == 0) return;
  x.storage()->note_write();
  backend(x).fill(x, value);
}

}  // namespace triax
