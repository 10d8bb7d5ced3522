#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

/// A DeepSpeed configuration, and the program that shall train as it says.
struct DeepSpeedFile {
  std::string path;
  std::string program;
  const Settings& settings;               ///< those of `train`
  const std::vector<std::string>& given;  ///< names of flags on the command line, which win
  int64_t dp = 1;                         ///< data-parallel replicas: DeepSpeed's world size
};

/// Assigns what the file says to the settings; returns lines with the effect of every key. The file
/// is JSON with comments, and commas and quotes as strict_json() has them; "auto" leaves a key to
/// its flag. A key is a setting here, or has no effect, or is refused: no key is ignored in
/// silence. `optimizer` and `scheduler` bring DeepSpeed's defaults along. Throws Error 78 naming
/// the file, the key and what was expected; 66 and 65 for what cannot be read.
std::string apply_deepspeed(const DeepSpeedFile& file);

}  // namespace triax::parallel
