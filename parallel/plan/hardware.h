#pragma once
#include <map>
#include <string>
#include <vector>

#include "triax/core/device.h"
#include "triax/core/meta/meta.h"
#include "triax/parallel/comm/call.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

/// The hardware of a rank, and the rates that work reaches on it. Read from a TOML file whose keys
/// are those of hardware_settings(): `--hardware NAME|FILE`. Rates in FLOP/s and bytes/s of one
/// rank, times in seconds.
struct Hardware {
  std::string name;
  std::string device = "cuda";           ///< where tensors live: `cpu`, `cuda`
  double memory = 0, reserve = 0;        ///< bytes, and those of them that tensors do not get
  double fp32 = 0, low = 0;              ///< peak of products in fp32 and in bf16 or fp16
  double products = 0, attention = 0;    ///< part of it that products and attention reach
  double bandwidth = 0;                  ///< of the memory
  double kernels = 0, update = 0;        ///< part of it that other kernels and AdamW reach
  double kernel_start = 0, launch = 0;   ///< of a kernel: on the device, and on the host before
  double link = 0, link_part = 0;        ///< to ranks of the same node, and the part reached
  double network = 0, network_part = 0;  ///< of a whole node to other nodes, likewise
  double latency = 0;                    ///< of a collective or a message, however small
  int64_t per_node = 0;                  ///< ranks of a node

  bool on_host() const { return device == "cpu"; }
  Device::Kind kind() const { return on_host() ? Device::Kind::cpu : Device::Kind::cuda; }
  double peak(DType dtype) const { return dtype == f32 ? fp32 : low; }
  /// Returns the bytes that tensors of a rank may take.
  double room() const { return memory - reserve; }

  /// Returns the seconds of such work on the device.
  double seconds(const KernelWork& work, DType dtype) const;
  /// Returns the host's seconds to start it, while the device does what was started before.
  double launches(const KernelWork& work) const;
  /// Returns the seconds of these collectives, by rings over `ranks` ranks that are `stride` apart:
  /// as fast as the links of a node or, if slower, as the network cards of the ring's members in a
  /// node, the fewest where nodes differ.
  double seconds(const Ledger::Line& line, int64_t ranks, int64_t stride) const;
  /// Returns the seconds of a message of so many bytes to the rank `stride` further.
  double message(double bytes, int64_t stride) const;
  /// True if transfers among so many ranks, `stride` apart, overlap kernels: those that GPUs or
  /// network cards make, not those between CPUs of a node, since their cores move the bytes.
  bool overlaps(int64_t ranks, int64_t stride) const;
};

/// Returns the seconds of kernels that take the device and the host this long in all. Each takes
/// the longer of its time on the device and the host's time to start it. The latter is equal for
/// all, the former exponentially distributed: most kernels are short, a few long.
double with_host(double device, double host);

/// Returns the keys of a hardware file, bound to `h`.
Settings hardware_settings(Hardware& h);
/// Returns the names shipped with the program, sorted.
std::vector<std::string> hardware_names();
/// Returns the hardware of that name, or of that file. Throws Error 78 for an unknown name or a bad
/// key or value, with file and line, and for a missing key; 66 for a file that is not there.
Hardware hardware_named(const std::string& name);

/// Returns the texts of parallel/plan/hardware/*.toml by name, as of the library's build.
const std::map<std::string, std::string>& shipped_hardware();

}  // namespace triax::parallel
