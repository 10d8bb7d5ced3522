#include "parallel/program/deepspeed/reader.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/io/files.h"
#include "parallel/program/deepspeed/keys.h"
#include "parallel/train/options/options.h"

namespace triax::parallel {
namespace {

using nn::JsonReader;

/// Flattens blocks to paths. A block that is true or false alone is one with this as its `enabled`.
void flatten(const JsonReader& object, const std::string& prefix,
             std::map<std::string, JsonReader>& into) {
  for (auto& [key, value] : object.members()) {
    std::string name = prefix + (prefix.empty() && key == "bfloat16" ? "bf16" : key);
    bool block = value.is_object() && !value.members().empty();
    bool is_switch = value.literal() == "true" || value.literal() == "false";
    if (block) flatten(value, name + ".", into);
    else if (is_switch && deepspeed::can_be_enabled(name)) name += ".enabled";
    if (!block)
      check_input(into.emplace(name, value).second, Exit::config,
                  "deepspeed: `{}` is given twice, as `bf16` and as `bfloat16`", printable(name));
  }
}

std::optional<double> number_in(const std::string& text) {
  double number = 0;
  bool fine = parse_number(text, number) && std::isfinite(number);
  return fine ? std::optional(number) : std::nullopt;
}

/// Returns the name, inside of the block, of its first known key.
std::string first_inside(const std::string& block, const std::vector<std::string>& known) {
  auto found = std::ranges::find_if(known, [&](auto& key) { return key.starts_with(block + "."); });
  if (found == known.end()) return {};
  std::string inside = found->substr(block.size() + 1);
  return inside.substr(0, inside.find('.'));
}

/// Returns the last part of a path.
std::string_view last_of(std::string_view key) { return key.substr(key.rfind('.') + 1); }

/// Returns a value as a flag has it: 2e8 is 200000000. Other text than a number stays JSON, which
/// no flag of a number takes.
std::string flag_text(const std::string& json) {
  auto number = number_in(json);
  bool whole = number && std::abs(*number) < 0x1p53 && *number == std::floor(*number);
  return whole ? fmt::format("{}", int64_t(*number)) : json;
}

}  // namespace

std::string plain(const JsonReader& value) {
  if (!value.is_text()) return value.literal();
  std::string text = value.text();
  if (text == "True" || text == "False") text[0] = char(text[0] - 'A' + 'a');
  return number_in(text) || text == "true" || text == "false" ? text : value.literal();
}

DeepSpeedReader::DeepSpeedReader(const DeepSpeedFile& file, const std::string& text) : file_(file) {
  constexpr int deepest = 16;
  flatten(JsonReader(json_of_hjson(text, file.path), file.path, "the configuration", deepest), "",
          left_);
}

void DeepSpeedReader::attempt(const std::function<void()>& part) {
  try {
    part();
  } catch (const Error& e) {
    if (e.code() != Exit::config) throw;
    refused_.emplace_back(e.what());
  }
}

bool DeepSpeedReader::has_block(const std::string& name) const {
  auto next = left_.lower_bound(name + ".");
  return next != left_.end() && next->first.starts_with(name + ".");
}

bool DeepSpeedReader::is_auto(const std::string& key) const {
  return has(key) && literal_of(key) == R"("auto")";
}

bool DeepSpeedReader::given(const std::string& flag) const {
  return std::ranges::count(file_.given, flag) > 0;
}

void DeepSpeedReader::refuse(const std::string& key, const std::string& why) const {
  fail(Exit::config, "{}: {} {}", file_.path, printable(key), why);
}

const Setting* DeepSpeedReader::find(const std::string& flag) const {
  auto found = std::ranges::find(file_.settings, flag, &Setting::name);
  return found == file_.settings.end() ? nullptr : &*found;
}

const Setting& DeepSpeedReader::setting(const std::string& flag, const std::string& key) const {
  if (!knows(flag))
    refuse(key,
           fmt::format("has no counterpart: {} has no --{}; leave it out", file_.program, flag));
  return *find(flag);
}

std::optional<JsonReader> DeepSpeedReader::take(const std::string& key, const std::string& flag) {
  auto found = left_.find(key);
  if (found == left_.end()) return {};
  JsonReader value = found->second;
  bool open = is_auto(key);
  left_.erase(found);
  if (!open) return value;
  if (knows(flag)) leave_to_flag(flag);
  else note(key, "\"auto\" stands for what is always so in triax");
  return {};
}

std::optional<bool> DeepSpeedReader::truth(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (!value) return {};
  std::string text = plain(*value);
  if (text != "true" && text != "false")
    refuse(key, fmt::format("is {}; expected true, false or \"auto\"", printable(text)));
  return text == "true";
}

std::optional<std::string> DeepSpeedReader::word(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (value && !value->is_text())
    refuse(key, fmt::format("is {}; expected a string", printable(value->literal())));
  return value ? std::optional(value->text()) : std::nullopt;
}

std::optional<double> DeepSpeedReader::number(const std::string& key, const std::string& flag) {
  auto value = take(key, flag);
  if (!value) return {};
  auto number = number_in(plain(*value));
  if (!number)
    refuse(key, fmt::format("is {}; expected a number or \"auto\"", printable(value->literal())));
  return number;
}

std::optional<int64_t> DeepSpeedReader::whole(const std::string& key, const std::string& flag) {
  auto value = number(key, flag);
  if (!value) return {};
  if (*value != std::floor(*value) || *value < 1 || *value > huge)
    refuse(key, fmt::format("is {}; expected a whole number, 1 or more, or \"auto\"", *value));
  return int64_t(*value);
}

void DeepSpeedReader::choose(const std::string& flag, const std::string& text,
                             const std::string& key) {
  (void)setting(flag, key);
  from_flags_.erase(flag);
  if (given(flag)) note_overridden(key);
  else chosen_[flag] = {text, key};
}

void DeepSpeedReader::choose_default(const std::string& flag, const std::string& text,
                                     const std::string& key) {
  if (!has(key)) choose(flag, text, key);
}

void DeepSpeedReader::copy(const std::string& key, const std::string& flag) {
  if (!has(key)) return;
  bool text = is_text(setting(flag, key));
  if (auto value = take(key, flag))
    choose(flag, text && value->is_text() ? value->text() : flag_text(plain(*value)), key);
}

std::string DeepSpeedReader::value_of(const std::string& flag) const {
  auto chosen = chosen_.find(flag);
  if (chosen != chosen_.end()) return chosen->second.text;
  return without_quotes(literal(*find(flag)));
}

std::string DeepSpeedReader::chosen_by(const std::string& flag) const {
  auto chosen = chosen_.find(flag);
  return chosen == chosen_.end() ? "" : chosen->second.key;
}

void DeepSpeedReader::drop(const std::string& key, const std::string& why) {
  if (left_.erase(key) > 0) note(key, why);
}

void DeepSpeedReader::drop_block(const std::string& block, const std::string& why) {
  for (auto at = left_.lower_bound(block); at != left_.end() && at->first.starts_with(block);
       at = left_.erase(at))
    note(at->first, why);
}

void DeepSpeedReader::drop_empty(const std::vector<std::string>& known) {
  std::erase_if(left_, [&](auto& entry) {
    auto& [key, value] = entry;
    bool empty = value.is_object() || value.is_null();
    bool off = value.literal() == "false" && !first_inside(key, known).empty();
    if (empty || off) note(key, empty ? "it is empty" : "it is off");
    return empty || off;
  });
}

void DeepSpeedReader::refuse_left(const std::string& key,
                                  const std::vector<std::string>& known) const {
  if (auto inside = first_inside(key, known); !inside.empty())
    refuse(key, fmt::format("is {}; expected a block: \"{}\": {{\"{}\": ...}}",
                            printable(literal_of(key)), last_of(key), inside));
  if (std::ranges::count(known, key) > 0)
    refuse(key, "does not go with the other keys here; leave it out");
  std::string meant = hint(key, known, "`{}`");
  fail(Exit::config, "{}: unknown key `{}`{}", file_.path, printable(key),
       meant.empty() ? "; triax has nothing for it: leave it out" : meant);
}

void DeepSpeedReader::finish(const std::vector<std::string>& known) {
  bool all_read = refused_.empty();  // else a known key is left because another was refused
  for (auto& left : left_)
    if (all_read || std::ranges::count(known, left.first) == 0)
      attempt([&] { refuse_left(left.first, known); });
  for (auto& [flag, chosen] : chosen_)
    attempt([&, &flag = flag, &chosen = chosen] {
      assign(setting(flag, chosen.key), chosen.text,
             {Exit::config, fmt::format("{}: {}", file_.path, chosen.key)});
    });
  if (!refused_.empty()) fail(Exit::config, "{}", join(refused_, "\n"));
}

std::string DeepSpeedReader::notes() const {
  std::vector<std::string> set, left;
  for (auto& [flag, chosen] : chosen_) set.push_back(fmt::format("--{} {}", flag, chosen.text));
  for (auto& flag : from_flags_)
    if (!chosen_.contains(flag))
      left.push_back(fmt::format("--{} ({})", flag, default_of(*find(flag))));
  std::string text = file_.path + "\n";
  if (!set.empty()) text += fmt::format("  sets {}\n", join(set, " "));
  if (!left.empty()) text += fmt::format("  leaves to flags: {}\n", join(left, " "));
  for (auto& line : said_) text += fmt::format("  {}\n", line);
  if (!overridden_.empty()) text += fmt::format("  flags win over {}\n", join(overridden_, ", "));
  for (auto& [why, keys] : without_)
    text += fmt::format("  no effect: {}: {}\n", join(keys, ", "), why);
  return text;
}

}  // namespace triax::parallel
