#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "triax/core/io/json.h"
#include "triax/parallel/program/deepspeed/deepspeed.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

// The meaning of DeepSpeed's keys here (deepspeed.ai, "DeepSpeed Configuration JSON"), as tables. A
// key is a path: `fp16.loss_scale`. Those that need a decision are in deepspeed.cpp, and those
// whose value is a flag's beside the flag (SettingTraits::deepspeed).
namespace deepspeed {

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

/// Returns keys by name, for a hint: those of the tables, of deepspeed.cpp and of the settings.
std::vector<std::string> known_keys(const Settings& settings);
/// Returns the keys whose values a setting has.
std::vector<std::string> keys_of(const Setting& setting);

}  // namespace deepspeed

/// Returns a value as JSON. A number, true or false in quotes, as DeepSpeed takes for most keys,
/// loses them for all.
std::string plain(const nn::JsonReader& value);

/// The keys of a DeepSpeed configuration that are not handled yet, and the effects of the others. A
/// key is a path: `fp16.enabled`.
class DeepSpeedReader {
 public:
  /// Throws Error 65 for a text that is no JSON object.
  DeepSpeedReader(const DeepSpeedFile& file, const std::string& text);

  /// Runs a part of the reading. `finish` reports its errors together with those of other parts.
  void attempt(const std::function<void()>& part);

  bool has(const std::string& key) const { return left_.contains(key); }
  bool has_block(const std::string& name) const;
  bool is_auto(const std::string& key) const { return has(key) && literal_of(key) == R"("auto")"; }
  /// True if the program has this flag; true if it is on the command line.
  bool knows(const std::string& flag) const { return find(flag) != nullptr; }
  bool given(const std::string& flag) const { return std::ranges::count(file_.given, flag) > 0; }
  [[noreturn]] void refuse(const std::string& key, const std::string& why) const;

  /// Takes the value of a key, unless it is not there, or "auto", which leaves it to `flag`.
  std::optional<nn::JsonReader> take(const std::string& key, const std::string& flag = {});
  std::optional<bool> truth(const std::string& key, const std::string& flag);
  std::optional<std::string> word(const std::string& key, const std::string& flag = {});
  std::optional<double> number(const std::string& key, const std::string& flag);
  /// Takes a whole number from 1 on.
  std::optional<int64_t> whole(const std::string& key, const std::string& flag);

  /// Sets the flag for `key`, unless the command line does. The last choice counts.
  void choose(const std::string& flag, const std::string& text, const std::string& key);
  /// Does so for a key that is not there.
  void choose_default(const std::string& flag, const std::string& text, const std::string& key);
  /// Sets the flag to the value of a key that is there.
  void copy(const std::string& key, const std::string& flag);
  void leave_to_flag(const std::string& flag) { from_flags_.insert(flag); }
  /// Return the value that the flag will have, and the key that chose it; empty if none did.
  std::string value_of(const std::string& flag) const;
  std::string chosen_by(const std::string& flag) const;

  /// Record keys without effect here, and why; for a block, all that is left of it.
  void note(const std::string& key, const std::string& why) { without_[why].push_back(key); }
  void drop(const std::string& key, const std::string& why);
  void drop_block(const std::string& block, const std::string& why);
  /// Drops `{}` and null, and false for a block of the known keys.
  void drop_empty(const std::vector<std::string>& known);
  void note_overridden(const std::string& key) { overridden_.push_back(key); }
  /// Returns the value of a key that is there, by `plain`.
  std::string literal_of(const std::string& key) const { return plain(left_.at(key)); }
  /// Adds a line to the notes.
  void say(const std::string& line) { said_.push_back(line); }

  /// Assigns the chosen values. Throws Error 78 with all that was refused, and keys that are left.
  /// `known`: names for a hint.
  void finish(const std::vector<std::string>& known);
  std::string notes() const;

 private:
  const Setting* find(const std::string& flag) const;
  const Setting& setting(const std::string& flag, const std::string& key) const;
  [[noreturn]] void refuse_left(const std::string& key,
                                const std::vector<std::string>& known) const;

  struct Chosen {
    std::string text, key;
  };
  const DeepSpeedFile& file_;
  std::map<std::string, nn::JsonReader> left_;
  std::map<std::string, Chosen> chosen_;  // by flag
  std::set<std::string> from_flags_;
  std::vector<std::string> overridden_, said_, refused_;
  std::map<std::string, std::vector<std::string>> without_;  // keys by the reason
};

}  // namespace triax::parallel
