#pragma once
#include "core/backend.h"

// The one place that knows oneDNN (2.6 and 3.x, on OpenMP threads). Compiled once; without the
// library the functions of onednn_absent.cpp stand here.
namespace triax::host::onednn {

/// Whether this machine multiplies matrices of `dtype` in hardware that only the library drives
/// here (AMX). False without the library.
bool pays(DType dtype);

/// `p` by the library, with sums in f32, as Backend::matmul promises; long sums of small products
/// are cut among threads, so their bits repeat for an equal number of threads only. With `before`
/// only that is written; gelu of it is left to the caller. False, and nothing done, if the library
/// cannot.
bool matmul(const Matmul& p);

}  // namespace triax::host::onednn
