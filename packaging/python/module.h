#pragma once
#include <nanobind/nanobind.h>

namespace triax::python {

// The parts of the module `_triax`, a file each. Calls that take long release the interpreter's
// lock.

/// Adds `Tensor` and `from_dlpack`: tensors on the CPU that share memory with other libraries.
void add_tensor(nanobind::module_& m);
/// Adds `Checkpoint`: a checkpoint's settings and tensors, and the logits of its model.
void add_checkpoint(nanobind::module_& m);
/// Adds `plan`, `schedule` and `parity`.
void add_instruments(nanobind::module_& m);

}  // namespace triax::python
