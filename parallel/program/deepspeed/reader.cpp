#include "parallel/program/deepspeed/reader.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "core/check.h"
#include "core/io/files.h"
#include "parallel/program/deepspeed/keys.h"
#include "parallel/train/options/options.h"

namespace triax::parallel {
namespace {

using nn::JsonReader;

/// Returns a text without what configurations of DeepSpeed may have beyond JSON: comments (#, //,
/// /* */), a comma behind the last value, and keys without quotes. Lines stay where they are.
std::string strict_json(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::string json;
  for (size_t at = 0, end = 0; at < text.size(); at = end) {
    std::string_view rest = text.substr(at);
    auto is_word = [](char c) { return std::isalnum(uint8_t(c)) || c == '_'; };
    auto word = size_t(std::ranges::find_if_not(rest, is_word) - rest.begin());
    end = at + std::max<size_t>(word, 1);
    if (rest[0] == '#' || rest.starts_with("//")) {
      end = std::min(text.find('\n', at), text.size());
    } else if (rest.starts_with("/*")) {
      end = std::min(text.find("*/", at + 2), text.size() - 2) + 2;
      json += ' ' + std::string(size_t(std::ranges::count(text.substr(at, end - at), '\n')), '\n');
    } else if (rest[0] == '"') {
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      json += text.substr(at, end - at);
    } else if (word > 0) {
      size_t next = std::min(text.find_first_not_of(blanks, end), text.size() - 1);
      const char* quote = text[next] == ':' ? "\"" : "";
      json += fmt::format("{}{}{}", quote, rest.substr(0, word), quote);
    } else {
      size_t last = rest[0] == '}' || rest[0] == ']' ? json.find_last_not_of(blanks) : json.npos;
      if (last != json.npos && json[last] == ',') json[last] = ' ';
      json += rest[0];
    }
  }
  size_t first = std::min(json.find_first_not_of(blanks), json.size());
  std::rotate(json.begin(), json.begin() + ptrdiff_t(first),
              json.begin() + ptrdiff_t(std::min(first + 1, json.size())));  // it begins with {
  return json;
}

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
  flatten(JsonReader(strict_json(text), file.path, "the configuration", deepest), "", left_);
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
