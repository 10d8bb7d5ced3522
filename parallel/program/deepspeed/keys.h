#pragma once
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/settings/setting.h"

// The meaning of DeepSpeed's keys here (deepspeed.ai, "DeepSpeed Configuration JSON"), as tables. A
// key is a path: `fp16.loss_scale`. Those that need a decision are in deepspeed.cpp, and those
// whose value is a flag's beside the flag (SettingTraits::deepspeed).
namespace triax::parallel::deepspeed {

/// Keys that change no result here. A key that ends with a dot is a whole block.
struct WithoutEffect {
  const char* why;
  std::initializer_list<const char*> keys;
};
std::span<const WithoutEffect> without_effect();

/// A key of a feature that triax lacks: only the values that switch it off are allowed.
struct Only {
  const char* key;
  const char* allowed;  ///< JSON, separated by spaces
  const char* cure;
};
std::span<const Only> only_off();

/// Returns blocks that change training unless their `enabled` is false.
std::span<const char* const> blocks_to_disable();

/// True for a block with a key `enabled`.
bool can_be_enabled(std::string_view block);

/// Returns keys by name, for a hint: those of the tables, of deepspeed.cpp and of the settings.
std::vector<std::string> known_keys(const Settings& settings);
/// Returns the keys whose values a setting has.
std::vector<std::string> keys_of(const Setting& setting);

}  // namespace triax::parallel::deepspeed
