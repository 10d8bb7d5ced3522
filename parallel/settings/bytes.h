#pragma once
#include <string>

namespace triax::parallel {

/// Bytes of this machine's memory that nobody uses; 0 where that is not known.
double available_memory();

/// `80GB`, `512 mb`, `0.5TB`, powers of ten. Throws Error 78 for another text.
double bytes_of(const std::string& text);
/// `79.6 GB`, three digits.
std::string show_bytes(double bytes);

}  // namespace triax::parallel
