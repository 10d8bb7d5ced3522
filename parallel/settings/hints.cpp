#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>
#include <vector>

#include "triax/core/check.h"
#include "triax/parallel/settings/setting.h"

namespace triax::parallel {

namespace {

// Verbs and flags of earlier versions that are scripts now.
constexpr std::pair<std::string_view, const char*> scripts[] = {
    {"report", "triax-report RUN.."},
    {"overlay", "triax-overlay RUN"},
    {"diff", "triax-compare-checkpoints A B"}};

// Returns the distance of Levenshtein (1966), row by row.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      size_t substitute = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substitute, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

// Returns a name as it is written here: --Micro_Batch is micro-batch.
std::string normal(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  std::string name(word);
  for (char& c : name) c = c == '_' ? '-' : char(std::tolower(static_cast<unsigned char>(c)));
  return name;
}

}  // namespace

std::string nearest(std::string_view typed, std::span<const std::string> names) {
  std::string word = normal(typed);
  size_t limit = word.size() < 4 ? 1 : std::max<size_t>(2, word.size() / 3);
  std::string best;
  for (const std::string& name : names) {
    size_t least = std::max(word.size(), name.size()) - std::min(word.size(), name.size());
    if (least > limit) continue;
    size_t distance = edit_distance(word, name);
    if (distance <= limit && distance < name.size()) limit = distance - (distance > 0), best = name;
  }
  if (!best.empty() || word.size() < 3) return best;
  auto longer = [&](const std::string& name) { return name.starts_with(word); };
  auto found = std::find_if(names.begin(), names.end(), longer);
  return found == names.end() ? "" : *found;
}

std::vector<Elsewhere> names_of(const Settings& settings) {
  return transformed(settings, [](auto& s) { return Elsewhere{s.name, s.elsewhere}; });
}

std::string hint(std::string_view typed, std::span<const std::string> names, const char* around) {
  std::string word = normal(typed), near = nearest(word, names);
  for (auto& [was, is] : scripts)
    if (was == word) return fmt::format("; it is `{}` now", is);
  return near.empty() ? "" : "; the nearest is " + fmt::format(fmt::runtime(around), near);
}

std::string hint(std::string_view typed, const std::vector<Elsewhere>& known, const char* around) {
  std::string word = normal(typed);
  std::vector<std::string> meant, names;
  for (auto& [name, others] : known) {
    if (fmt::format("|{}|", others).find(fmt::format("|{}|", word)) != std::string::npos)
      meant.push_back(fmt::format(fmt::runtime(around), name));
    names.push_back(name);
  }
  return meant.empty() || word.empty() ? hint(typed, names, around)
                                       : "; use " + join(meant, " or ");
}

}  // namespace triax::parallel
