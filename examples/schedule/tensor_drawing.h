#pragma once
#include <string>
#include <vector>

#include "core/shape.h"

namespace triax::schedule {

/// What the ranks of an axis have of one tensor.
enum class Holds {
  alike,  ///< the same
  rows,   ///< token rows of their own
  slice,  ///< a slice of the features, or a part of a sum
};

/// One recorded op of a transformer block, as one rank has it.
struct BlockOp {
  std::string name;
  Shape shape;                          ///< of its output
  std::string weight = {};              ///< `qkv.weight [48, 32] of [96, 32]`; empty: none
  std::string forward = {}, back = {};  ///< the collectives it makes; empty: none
  Holds holds = Holds::alike;
  std::vector<size_t> inputs = {};  ///< ops before it; `first` stands for the block's input
  static constexpr size_t first = size_t(-1);
};

/// minigpt's block on an axis of `ranks`, read from the graph that its forward recorded.
struct BlockTrace {
  int ranks = 1;
  bool sequence = false;
  BlockOp input = {};
  std::vector<BlockOp> ops = {};
};

/// Runs it on threads. Throws Error 78 unless `ranks` divide its 4 heads.
BlockTrace trace_block(int ranks, bool sequence);

/// A line for each op.
std::string as_text(const BlockTrace& trace);

/// A file in SVG: the traces side by side, ops from top to bottom.
std::string as_svg(const std::vector<BlockTrace>& traces);

}  // namespace triax::schedule
