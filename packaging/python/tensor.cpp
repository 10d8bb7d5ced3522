#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "packaging/python/module.h"
#include "triax/core/check.h"
#include "triax/core/interop/interop.h"

namespace nb = nanobind;

namespace triax::python {
namespace {

using Array = nb::ndarray<>;
using Code = nb::dlpack::dtype_code;

/// Returns what DLPack calls a dtype.
nb::dlpack::dtype named(DType dtype) {
  Code code = dtype == bf16     ? Code::Bfloat
              : is_float(dtype) ? Code::Float
              : is_index(dtype) ? Code::Int
                                : Code::UInt;
  return {uint8_t(code), uint8_t(8 * size_of(dtype)), 1};
}

std::optional<DType> dtype_of(const nb::dlpack::dtype& type) {
  for (int t = 0; t < dtype_count; ++t)
    if (type == named(DType(t))) return DType(t);
  return {};
}

bool row_major(const Array& a) {
  int64_t stride = 1;
  for (size_t d = a.ndim(); a.size() > 0 && d-- > 0; stride *= int64_t(a.shape(d)))
    if (a.shape(d) != 1 && a.stride(d) != stride) return false;
  return true;
}

/// Returns an array over the memory of `x`, which lives as long: an object with `__dlpack__`.
nb::object array_of(const Tensor& x) {
  nb::capsule owner(new Tensor(x), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  std::vector<size_t> shape(x.shape().begin(), x.shape().end());
  return nb::cast(nb::ndarray<nb::array_api>(x.data(), shape.size(), shape.data(), owner,
                                             x.strides().begin(), named(x.dtype()),
                                             nb::device::cpu::value));
}

/// Returns a tensor over the memory of `given`, which is kept until the last handle has gone.
Tensor from_dlpack(nb::handle given) {
  auto array = std::make_shared<Array>();
  std::string type = nb::cast<std::string>(nb::str(given.type()));
  check_input(nb::try_cast(given, *array, false), Exit::data,
              "from_dlpack: {}; expected a writable array with __dlpack__", type);
  std::optional<DType> dtype = dtype_of(array->dtype());
  bool fits = array->ndim() <= size_t(Shape::max_rank) && row_major(*array);
  check_input(dtype && fits && array->device_type() == nb::device::cpu::value, Exit::data,
              "from_dlpack: device type {}, type code {} of {} bits, {} dims, row-major {}; "
              "expected a CPU, f16, f32, f64, bf16, i32, i64 or u8, at most {}, row-major",
              array->device_type(), array->dtype().code, array->dtype().bits, array->ndim(), fits,
              Shape::max_rank);
  Shape shape;
  for (size_t d = 0; d < array->ndim(); ++d) shape.push_back(int64_t(array->shape(d)));
  return borrow(array->data(), shape, *dtype, cpu, [array] {
    nb::gil_scoped_acquire lock;  // the last handle may go on any thread
    *array = {};
  });
}

Tensor converted(const Tensor& x, const std::string& dtype) {
  for (int t = 0; t < dtype_count; ++t)
    if (dtype == name(DType(t))) return x.to(DType(t));
  fail(Exit::usage, "to: dtype {}; expected f32, f64, f16, bf16, i32, i64 or u8", dtype);
}

nb::tuple shape_of(const Tensor& x) {
  nb::list sizes;
  for (int64_t size : x.shape()) sizes.append(size);
  return nb::tuple(sizes);
}

}  // namespace

void add_tensor(nb::module_& m) {
  nb::class_<Tensor>(m, "Tensor", "An array on the CPU. Others share its memory by DLPack.")
      .def_prop_ro("shape", shape_of)
      .def_prop_ro("dtype", [](const Tensor& x) { return name(x.dtype()); })
      .def("__dlpack__",
           [](const Tensor& x, const nb::kwargs& how) {
             return array_of(x).attr("__dlpack__")(**how);
           })
      .def("__dlpack_device__",
           [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); })
      .def("to", converted, nb::arg("dtype"),
           "Returns it in another dtype: f32, f64, f16, bf16, i32, i64 or u8.")
      .def(
          "numpy",
          [](nb::handle x) { return nb::module_::import_("numpy").attr("from_dlpack")(x); },
          "Returns a NumPy array over the same memory; NumPy has no bf16.")
      .def("__repr__", [](const Tensor& x) { return to_string(x) + "  # " + str(x); });
  m.def("from_dlpack", from_dlpack, nb::arg("array"),
        "Returns a Tensor over the memory of an array of NumPy, PyTorch, JAX or others.");
}

}  // namespace triax::python
