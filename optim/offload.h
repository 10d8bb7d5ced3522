#pragma once
#include <string>

#include "optim/state_file.h"

namespace triax::optim {

/// Where an optimizer keeps its state, master weights included, between steps (Ren et al.,
/// "ZeRO-Offload", 2021; Rajbhandari et al., "ZeRO-Infinity", 2021).
struct Offload {
  /// `off`: where the weights are. `host`: in the host's memory. `file`: in a file of this rank in
  /// `directory` (StateFile says what is refused).
  enum class To { off, host, file } to = To::off;
  std::string directory = {};
  /// What is updated at once, in elements, where the state is not where the weights are. With a
  /// file at most `window` chunks are in memory: with these sizes 6 * 2^18 * (m, v and perhaps
  /// master: 8 or 12 bytes) = 12.6 or 18.9 MB, whatever the model's size.
  int64_t chunk = int64_t(1) << 18;
  size_t window = 6;
  StateFileOptions::Engine engine = StateFileOptions::Engine::fastest;
};

}  // namespace triax::optim
