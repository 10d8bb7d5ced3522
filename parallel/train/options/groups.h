#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "triax/nn/module.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/tensor/lora.h"

namespace triax::parallel {

/// Parameters whose learning rate or weight decay differs from the others', or that are not trained
/// at all, by the pattern of their names: PyTorch's parameter groups.
struct OptimizerGroup {
  std::string match;  ///< full names, where `*` stands for any characters: `head.*`
  double lr = 1;      ///< factor of the learning rate
  /// The weight decay of every parameter of the group, biases too, in place of the optimizer's;
  /// none: unchanged.
  std::optional<double> weight_decay = {};
  bool frozen = false;
};

/// True if the name matches; `*` stands for any characters, none too.
bool matches(std::string_view pattern, std::string_view name);
/// Returns the patterns of a list such as `head.*; *lora*`. Throws Error 78 for an empty one.
std::vector<std::string> parse_patterns(const std::string& text);
/// Returns the likely meaning of a pattern that matches none of the names, and some of these.
std::string unmatched(const std::string& pattern, const std::vector<std::string>& names);

/// Reads `*norm*:lr=2,decay=0; head.*:decay=0.05; *:frozen`. Throws Error 78.
std::vector<OptimizerGroup> parse_groups(const std::string& text);

/// Writes the groups of `text` into the parameters of a bound model: of several groups that match a
/// name the first counts. What the model itself has frozen stays so. Throws Error 78 for a group to
/// which no parameter belongs.
void apply_groups(nn::Module& model, const std::string& text);

/// Returns the flags of a model's adapters.
Settings lora_settings(LoraOptions& o);

}  // namespace triax::parallel
