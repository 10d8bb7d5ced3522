#pragma once
#include "core/backend.h"

// The one place that knows oneDNN (2.6 and 3.x). Compiled once; without the library the functions
// of onednn_absent.cpp stand here.
namespace triax::host::onednn {

/// Whether this machine multiplies matrices of `dtype` in hardware that only the library drives
/// here (AMX). False without the library.
bool pays(DType dtype);

/// `p` without `before`, made by the library: sums in f32, the same contract as Backend::matmul.
/// False, and nothing done, if the library cannot.
bool matmul(const Matmul& p);

}  // namespace triax::host::onednn
