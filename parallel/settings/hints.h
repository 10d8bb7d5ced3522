#pragma once
#include <span>
#include <string>
#include <string_view>

namespace triax::parallel {

/// The name that a misspelt word is probably meant for: few edits away, or longer; empty if none.
std::string nearest(std::string_view word, std::span<const std::string> names);

/// What a message says about a word that is none of `names`: `; use --lr` for --learning-rate, `;
/// the nearest is --width` for --widht; empty if nothing comes to mind. `around` is how names are
/// written, such as `--{}`.
std::string hint(std::string_view word, std::span<const std::string> names, const char* around);

}  // namespace triax::parallel
