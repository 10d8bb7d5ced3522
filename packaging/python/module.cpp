#include "packaging/python/module.h"

#include "triax/core/error.h"
#include "triax/core/version.h"

namespace nb = nanobind;

namespace {

/// Raises the Python class `type` for an Error, with its exit code and text.
void raise_error(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const triax::Error& e) {
    nb::tuple arguments = nb::make_tuple(int(e.code()), e.what());
    PyErr_SetObject(static_cast<PyObject*>(type), arguments.ptr());
  }
}

}  // namespace

NB_MODULE(_triax, m) {
  nb::object type = nb::module_::import_("triax.error").attr("Error");
  m.attr("Error") = type;  // keeps it for raise_error
  nb::register_exception_translator(raise_error, type.ptr());
  m.attr("version") = triax::version();
  triax::python::add_tensor(m);
  triax::python::add_checkpoint(m);
  triax::python::add_instruments(m);
}
