#pragma once

/// @file The flags of minigpt by subject, from which each verb takes those that it has. They write
/// to the fields of the configuration that is passed, which outlives them.

#include "examples/minigpt/config.h"

namespace triax::minigpt {

/// The largest size of anything: products of two such sizes fit 64 bits.
constexpr double huge = 2147483647;

constexpr const char* config_help = "TOML file whose keys are these flags; flags win over it";

Flags model_flags(ModelConfig& c);
Flags data_flags(TrainConfig& c);
Flags optimisation_flags(TrainConfig& c);
Flags mesh_flags(MeshConfig& c);
Flags rank_flags(std::string& comm, int64_t& ranks, std::string& device);
Flags run_flags(TrainConfig& c);
Flags memory_flags(TrainConfig& c);
Flags checkpoint_flags(TrainConfig& c);

}  // namespace triax::minigpt
