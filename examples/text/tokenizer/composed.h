#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace triax::text {

/// A text in Unicode's normalization form C, in which a letter and its accent are one character
/// (The Unicode Standard, section 3.11), as Qwen's tokenizers have it.
struct Composed {
  std::string text;
  /// Some places in `text`, and in the original, which no composition crosses: all that composed()
  /// knows within the last bytes. Ascending; first (0, 0).
  std::vector<std::pair<size_t, size_t>> places;
};
/// Composes a text, UTF-8. Returns nothing if it is in that form.
std::optional<Composed> composed(std::string_view text);
/// Returns the last place of a text that no composition crosses, whatever follows it; 0 if none.
size_t last_place(std::string_view text);

}  // namespace triax::text
