#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "triax/core/error.h"

namespace triax::parallel {

/// The treatment of a changed value in a run that resumes a checkpoint.
enum class OnResume {
  refuse,  ///< it is another model or other data
  ask,     ///< it is another run, unless the user says that it may change: --resume-changed
  say,     ///< it is worth a line in the log
  free,    ///< nothing: it is another way to the same training, such as another mesh
  apart    ///< nothing: no step depends on it; how a run is started, watched and saved
};

/// The meaning of an option of `train` to `plan`.
enum class InPlan {
  absent,
  taken,  ///< it plans with the value
  sought  ///< it tries all values, unless one is given, and prints the best
};

/// The range of a number, which is finite in any case.
struct NumberRange {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  bool open_max = false;  ///< `max` itself is not allowed
  bool open_min = false;  ///< `min` itself is not allowed
};

/// A field of any type with named values; made by choice().
struct Choice {
  std::vector<std::string> names;
  std::function<void(size_t)> set;  ///< assigns the value of names[i]
  std::function<size_t()> get;      ///< names.size() if the value has no name
};

/// A field and the names of its values: choice(dtype, {{"fp32", f32}, {"bf16", bf16}}).
template <class T> Choice choice(T& field, std::vector<std::pair<std::string, T>> values) {
  Choice made;
  for (const auto& [name, value] : values) made.names.push_back(name);
  made.set = [&field, values](size_t i) { field = values[i].second; };
  made.get = [&field, values] {
    size_t i = 0;
    while (i < values.size() && !(values[i].second == field)) ++i;
    return i;
  };
  return made;
}

/// The optional properties of a setting.
struct SettingTraits {
  NumberRange range = {};
  std::vector<std::string> choices = {};  ///< for a string; empty: any
  std::string or_file = {};               ///< beside the choices, a path that ends so: `.json`
  std::string shown = {};                 ///< the default in words, where the value does not say it
  std::string alone = {};                 ///< the value of a flag without one; empty: it needs one
  std::optional<OnResume> on_resume = {};  ///< none: as the group has it
  /// True if it follows from other settings while unset: an empty string, or `range.min`.
  bool derived = false;
  bool saved = true;  ///< false: to_toml leaves it out, as it names this run (`out`, `resume`)
  bool key = true;    ///< a configuration file may have it
  std::optional<InPlan> plan = {};  ///< none: as the group has it
  std::optional<bool> parity = {};  ///< `parity` has it too; none: as the group has it
  /// The keys of DeepSpeed's JSON that have its values: `optimizer.params.lr`.
  std::string deepspeed = {};
};

/// One option of a program: a flag of its command line and a key of its configuration files. It
/// points into the program's options, which outlive it.
struct Setting : SettingTraits {
  std::string name;  ///< without dashes: `micro-batch`
  /// Its names in nanoGPT, Hugging Face, Megatron-LM, DeepSpeed and vLLM, for hints: `wd|decay`.
  std::string elsewhere;
  std::string group;  ///< heading in --help
  std::string value;  ///< the value's placeholder in --help: `N`; empty for a bool
  std::string help;   ///< one line
  /// Points to the default until assigned. A uint64_t is at most 2^63 - 1, TOML's largest integer.
  std::variant<int64_t*, int*, double*, uint64_t*, std::string*, bool*, Choice> field;
};
using Settings = std::vector<Setting>;

/// The verbs beside `train` that have an option.
struct InVerbs {
  InPlan plan = InPlan::absent;
  bool parity = false;
};

/// Settings under one heading of --help, one call each.
class SettingGroup {
 public:
  explicit SettingGroup(std::string heading, OnResume on_resume = OnResume::refuse,
                        InVerbs verbs = {})
      : heading_(std::move(heading)), on_resume_(on_resume), verbs_(verbs) {}
  /// Adds a setting. `name` may go on with names that it has elsewhere: `weight-decay|wd`.
  SettingGroup& add(const std::string& name, std::string value, std::string help,
                    decltype(Setting::field) field, SettingTraits traits = {}) {
    traits.on_resume = traits.on_resume.value_or(on_resume_);
    traits.plan = traits.plan.value_or(verbs_.plan);
    traits.parity = traits.parity.value_or(verbs_.parity);
    size_t end = std::min(name.find('|'), name.size());
    std::string elsewhere = name.substr(std::min(end + 1, name.size()));
    all_.push_back({std::move(traits), name.substr(0, end), std::move(elsewhere), heading_,
                    std::move(value), std::move(help), std::move(field)});
    return *this;
  }
  /// Adds settings of another heading.
  SettingGroup& add(const Settings& more) {
    all_.insert(all_.end(), more.begin(), more.end());
    return *this;
  }
  operator const Settings&() const { return all_; }

 private:
  std::string heading_;
  OnResume on_resume_;
  InVerbs verbs_;
  Settings all_;
};

/// Joins lists. Throws Error 78 for a name that is no flag or there twice.
Settings joined(std::initializer_list<Settings> lists);
/// Return the settings of these names, or all but those.
Settings only(Settings all, std::initializer_list<std::string_view> names);
Settings without(Settings all, std::initializer_list<std::string_view> names);

/// The origin of a value: the begin of a message about it, and the code it is refused with.
struct Origin {
  Exit code;
  std::string where;
};

/// Reads the value from text. Throws `origin.code`, naming the valid values.
void assign(const Setting& setting, const std::string& text, const Origin& origin);
/// Throws Error 78 naming each setting whose value is not allowed: for options set in code.
void check_values(const Settings& settings);

/// True if the field is a bool, so that its name alone is a value.
inline bool is_switch(const Setting& s) { return std::holds_alternative<bool*>(s.field); }
/// True if the value is written as a string.
bool is_text(const Setting& setting);
/// True if --help calls its value FILE, DIR, PATH or CHECKPOINT, alone or as the last of several.
bool is_path(const Setting& setting);
/// True if it is derived and was not given.
bool is_unset(const Setting& setting);

/// Returns the valid values in words: `a whole number in [1, 8]`.
std::string expected(const Setting& setting);
/// Returns the value as a command line has it, before quoting.
std::string value_text(const Setting& setting);
/// Returns the value as a configuration file has it.
std::string literal(const Setting& setting);
/// Returns a text as a basic string of TOML, with escapes.
std::string with_quotes(std::string_view text);
/// Returns a literal of a configuration as a command line has it: the argument of `with_quotes`,
/// or, without quotes around it, the literal itself.
std::string without_quotes(const std::string& literal);
/// Returns a TOML float: the shortest digits that read back to the same bits.
std::string toml_real(double number);
/// True for UTF-8 without NUL.
bool is_plain_text(std::string_view text);
/// Returns the value for a reader: `shown` if there is one.
std::string default_of(const Setting& setting);

/// Returns a configuration file in TOML from which read_config reads the same values, to the bit.
/// Unset values and those not `saved` are left out. Call it before derived settings are filled in:
/// then nothing that follows from other settings is pinned for the run that reads the file.
std::string to_toml(const Settings& settings);
/// Assigns the values of a configuration file. Throws Error 78 with file and line for a bad key or
/// value, 66 if there is no such file, 65 if it is no plain file or larger than 1 MiB. Keys of
/// `elsewhere`, settings of another verb that reads the same file, are left alone. Returns the keys
/// that the file has.
std::vector<std::string> read_config(const Settings& settings, const std::string& path,
                                     const Settings& elsewhere = {});
/// Assigns the values in a file's text; `path` is for messages.
std::vector<std::string> read_config_text(const Settings& settings, const std::string& text,
                                          const std::string& path, const Settings& elsewhere = {});

/// A name, and what others call the thing: `bs|batch-size`.
struct Elsewhere {
  std::string name, others;
};

/// Returns the name that a misspelt word probably means: few edits away, or longer; empty if none.
std::string nearest(std::string_view word, std::span<const std::string> names);

/// Returns the hint in a message about a word that is none of `names`: `; the nearest is --width`
/// for --widht; empty if nothing is near. `around` is how names are written, such as `--{}`.
std::string hint(std::string_view word, std::span<const std::string> names, const char* around);
/// Returns the hint about a word that names none of these: `; use --lr` for --learning-rate, if a
/// name elsewhere is meant, else as for names.
std::string hint(std::string_view word, const std::vector<Elsewhere>& known, const char* around);
/// Returns the names of settings, for hints.
std::vector<Elsewhere> names_of(const Settings& settings);

}  // namespace triax::parallel
