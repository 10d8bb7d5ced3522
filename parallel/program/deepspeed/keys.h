#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>

// The meaning of DeepSpeed's keys here (deepspeed.ai, "DeepSpeed Configuration JSON"), as tables. A
// key is a path: `fp16.loss_scale`. Those that need a decision are in deepspeed.cpp.
namespace triax::parallel::deepspeed {

/// A key whose value is that of a flag.
struct Same {
  const char *key, *flag;
};
std::span<const Same> same();

/// A key that changes no result here. A key that ends with a dot is a whole block.
struct WithoutEffect {
  const char *key, *why;
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

/// Returns keys by name, for a hint: those of the tables, and of deepspeed.cpp.
std::vector<std::string> known_keys();

}  // namespace triax::parallel::deepspeed
