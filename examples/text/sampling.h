#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace triax::text {

/// The rule by which the next token is drawn from a model's logits. In this order: the logits are
/// divided by the temperature, the `top_k` most likely tokens are kept, and of these the fewest
/// whose probabilities add up to `top_p` (Holtzman et al., "The curious case of neural text
/// degeneration", 2020).
struct Sampling {
  double temperature = 1;  ///< 0: always the most likely token
  int64_t top_k = 0;       ///< 0: all
  double top_p = 1;        ///< in (0, 1]
};

/// Returns the token that `uniform`, in (0, 1), draws: tokens in order of falling probability,
/// equal ones in their own, share the interval. Throws Error 77 if a logit is NaN.
size_t draw(const std::vector<double>& logits, const Sampling& how, double uniform);

}  // namespace triax::text
