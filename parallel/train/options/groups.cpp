#include "triax/parallel/train/options/groups.h"

#include <algorithm>
#include <cmath>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {
namespace {

constexpr const char* form =
    "PATTERN:lr=X,decay=X or PATTERN:frozen; ..., such as *norm*:lr=2,decay=0; *:frozen";

std::string trimmed(std::string_view text) {
  auto first = text.find_first_not_of(' ');
  if (first == text.npos) return {};
  return std::string(text.substr(first, text.find_last_not_of(' ') - first + 1));
}

/// Returns the parts between separators, without spaces around them.
std::vector<std::string> trimmed_parts(std::string_view text, char separator) {
  return transformed(parts_of(text, separator), trimmed);
}

/// Returns what semicolons separate; nothing of a blank text.
std::vector<std::string> entries_of(std::string_view text) {
  return trimmed(text).empty() ? std::vector<std::string>() : trimmed_parts(text, ';');
}

double number_in(std::string_view text, std::string_view whole) {
  double value = 0;
  check_input(parse_number(text, value) && std::isfinite(value) && value >= 0, Exit::config,
              "groups: `{}` has the value `{}`; expected a number from 0",
              printable(std::string(whole)), printable(std::string(text)));
  return value;
}

OptimizerGroup group_in(std::string_view text) {
  auto colon = text.find(':');
  std::string whole = printable(std::string(text));
  check_input(colon != text.npos && colon > 0, Exit::config, "groups: `{}`; expected {}", whole,
              form);
  OptimizerGroup group{.match = trimmed(text.substr(0, colon))};
  if (trimmed(text.substr(colon + 1)) == "frozen") {
    group.frozen = true;
    return group;
  }
  bool has_lr = false;
  for (auto& part : trimmed_parts(text.substr(colon + 1), ',')) {
    auto equals = part.find('=');
    auto key = trimmed(part.substr(0, equals));
    bool known =
        equals != part.npos && (key == "lr" ? !has_lr : key == "decay" && !group.weight_decay);
    check_input(known, Exit::config,
                "groups: `{}` has `{}`; expected lr=X or decay=X, each once, or frozen", whole,
                printable(part));
    double value = number_in(trimmed(part.substr(equals + 1)), text);
    if (key == "lr") group.lr = value, has_lr = true;
    else group.weight_decay = value;
  }
  return group;
}

/// Returns the likely meaning of a pattern that matches nothing.
std::string hint_of(const std::string& pattern, const std::vector<std::string>& names) {
  if (!pattern.ends_with(".*")) return hint(pattern, names, "{}");
  std::vector<std::string> modules;
  for (auto& name : names)
    for (auto dot = name.find('.'); dot != name.npos; dot = name.find('.', dot + 1))
      modules.push_back(name.substr(0, dot));
  return hint(pattern.substr(0, pattern.size() - 2), modules, "{}.*");
}

/// Returns some of the names, for a message.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t most = 8;
  std::vector<std::string> some(names.begin(), names.begin() + long(std::min(most, names.size())));
  std::string more = names.size() > most ? fmt::format(", ... ({})", names.size()) : "";
  return join(some, ", ") + more;
}

}  // namespace

// Takes the text between two stars at its first place: any later place leaves less for the rest.
bool matches(std::string_view pattern, std::string_view name) {
  auto star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  name.remove_prefix(star);
  for (pattern.remove_prefix(star + 1); (star = pattern.find('*')) != pattern.npos;
       pattern.remove_prefix(star + 1)) {
    auto at = name.find(pattern.substr(0, star));
    if (at == name.npos) return false;
    name.remove_prefix(at + star);
  }
  return name.ends_with(pattern);
}

std::vector<std::string> parse_patterns(const std::string& text) {
  auto patterns = entries_of(text);
  check_input(std::ranges::count(patterns, "") == 0, Exit::config,
              "patterns: `{}` has an empty one; expected PATTERN; ..., such as head.*; *lora*",
              printable(text));
  return patterns;
}

std::string unmatched(const std::string& pattern, const std::vector<std::string>& names) {
  return fmt::format("{}\n  Parameters: {}", hint_of(pattern, names), some_of(names));
}

std::vector<OptimizerGroup> parse_groups(const std::string& text) {
  return transformed(entries_of(text), group_in);
}

void apply_groups(nn::Module& model, const std::string& text) {
  auto groups = parse_groups(text);
  if (groups.empty()) return;
  std::vector<std::string> names;
  std::vector<bool> used(groups.size());
  for (nn::Parameter* p : model.parameters()) {
    names.push_back(p->name);
    auto group = std::ranges::find_if(groups, [&](auto& g) { return matches(g.match, p->name); });
    if (group == groups.end()) continue;
    used[size_t(group - groups.begin())] = true;
    p->frozen |= group->frozen;
    p->lr *= group->lr;
    if (group->weight_decay) p->weight_decay = group->weight_decay;
  }
  for (size_t i = 0; i < groups.size(); ++i) {
    if (used[i]) continue;
    const std::string& match = groups[i].match;
    bool taken = std::ranges::any_of(names, [&](auto& name) { return matches(match, name); });
    fail(Exit::config, "groups: `{}` matches no parameter{}", printable(match),
         taken ? " that no group before it has; expected it before them" : unmatched(match, names));
  }
}

Settings lora_settings(LoraOptions& o) {
  return SettingGroup("Model", OnResume::say)
      .add("lora|lora-r|lora-rank", "RANK",
           "low-rank adapters beside the projections, which alone are trained; 0: none", &o.rank,
           {.range = {0, 1 << 20}})
      .add("lora-alpha", "X", "what they add is multiplied by X / RANK", &o.alpha,
           {.range = {0, 1e6}, .shown = "2 x RANK"});
}

}  // namespace triax::parallel
