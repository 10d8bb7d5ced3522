#pragma once
#include <map>
#include <string>

#include "parallel/settings/setting.h"
#include "parallel/train/options.h"

namespace triax::parallel {

/// The largest size of anything: products of two such sizes fit 64 bits.
constexpr double huge = 2147483647;

/// @file Every option of a training run, once: flags of the command line, keys of configuration
/// files, what ranks must agree on and what a resumed run may not change are all made of these.
/// They write to the options that are passed, which outlive them.

Settings optimizer_settings(TrainOptions& o);
Settings mesh_settings(StepOptions& o);
Settings launch_settings(LaunchOptions& o);
Settings run_settings(TrainOptions& o);
Settings memory_settings(StepOptions& o);
Settings checkpoint_settings(TrainOptions& o);
/// All of the above.
Settings train_settings(TrainOptions& o);

/// `name = literal` of every setting, resolved ones included, by name.
std::map<std::string, std::string> values_of(const Settings& settings);

}  // namespace triax::parallel
