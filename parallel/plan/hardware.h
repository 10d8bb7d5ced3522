#pragma once
#include <string>
#include <vector>

namespace triax::parallel {

/// What a rank runs on, in figures that makers publish: peaks, of which work reaches a part.
struct Hardware {
  const char* name;
  double memory;     ///< bytes of one rank
  double fp32, low;  ///< peak FLOP/s of products (fp32: TF32 where there is it) and of bf16, fp16
  double bandwidth;  ///< bytes/s of memory
  double link, network;  ///< bytes/s of one rank and direction, to the same node and to others
  double latency;        ///< seconds that a transfer takes however small
  enum class Host { apart, same } host = Host::apart;  ///< is the host's memory another one?
};

/// `cpu` (one core with AVX-512 and AMX), `a100`, `h100`, `h200`.
std::vector<std::string> hardware_names();
/// Throws Error 78, naming those there are.
const Hardware& hardware_named(const std::string& name);

/// Bytes of this machine's memory that nobody uses; 0 where that is not known.
double available_memory();

/// `80GB`, `512 mb`, `0.5TB`, powers of ten. Throws Error 78 for another text.
double bytes_of(const std::string& text);
/// `79.6 GB`, three digits.
std::string show_bytes(double bytes);

}  // namespace triax::parallel
