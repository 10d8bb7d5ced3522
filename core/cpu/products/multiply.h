#pragma once
// Squares of products as the level makes them that a file is compiled for.
#if defined(__AMX_BF16__)
#include "triax/core/cpu/products/multiply_tiles.h"
#else
#include "triax/core/cpu/products/multiply_dots.h"
#endif
