#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "triax/core/device.h"

namespace triax::optim {

/// The place where an optimizer keeps its state, master weights included, between steps, or
/// DataParallel the weights and gradients of ZeRO-3 between uses (Ren et al., "ZeRO-Offload", 2021;
/// Rajbhandari et al., "ZeRO-Infinity", 2021).
struct Offload {
  /// `off`: where the model computes. `host`: in host memory. `file`: in a file of this rank in
  /// `directory` (check_offload_directory() says what is refused).
  enum class To { off, host, file } to = To::off;
  std::string directory = {};
  /// The elements of optimizer state updated at once, where the state is not where the weights are.
  /// With a file at most `window` chunks are in memory: with these sizes 6 * 2^18 * (m, v and
  /// perhaps master: 8 or 12 bytes) = 12.6 or 18.9 MB, whatever the model's size.
  int64_t chunk = int64_t(1) << 18;
  size_t window = 6;
};

/// Returns the host of `device`. A device without bytes (meta) has a host without bytes.
inline Device host_of(Device device) { return device == meta_device ? meta_device : cpu; }

/// Throws unless new files can be made in `directory`: Error 66 if it does not exist, 73 if it is
/// no directory or cannot be written.
void check_offload_directory(const std::string& directory);

}  // namespace triax::optim
