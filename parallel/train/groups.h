#pragma once
#include <optional>
#include <string>
#include <vector>

#include "nn/module.h"

namespace triax::parallel {

/// Parameters whose learning rate or weight decay differs from the others', by the pattern of their
/// names: PyTorch's parameter groups.
struct OptimizerGroup {
  std::string match;  ///< full names, where `*` stands for any characters: `head.*`
  double lr = 1;      ///< factor of the learning rate
  /// Of every parameter of the group, biases too, in place of the optimizer's; none: as without the
  /// group.
  std::optional<double> weight_decay = {};
};

/// Reads `*norm*:lr=2,decay=0; *:decay=0.05`. Throws Error 78.
std::vector<OptimizerGroup> parse_groups(const std::string& text);

/// Writes the groups of `text` into the parameters of a bound model: of several groups that match a
/// name the first counts. Throws Error 78 for a group to which no parameter belongs.
void apply_groups(nn::Module& model, const std::string& text);

}  // namespace triax::parallel
