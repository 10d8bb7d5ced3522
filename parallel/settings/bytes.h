#pragma once
#include <string>

namespace triax::parallel {

/// Returns the free bytes of this machine's memory; 0 where that is not known.
double available_memory();

/// Parses `80GB`, `512 mb`, `0.5TB`, powers of ten. Throws Error 78 for another text.
double bytes_of(const std::string& text);
/// Returns `79.6 GB`, three digits.
std::string show_bytes(double bytes);

}  // namespace triax::parallel
