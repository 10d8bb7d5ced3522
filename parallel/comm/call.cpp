#include "parallel/comm/call.h"

#include "core/check.h"

namespace triax::parallel {

std::string describe(const Call& c) {
  if (c.kind == Call::barrier || c.kind == Call::split) return fmt::format("{}()", name(c.kind));
  std::string text = fmt::format("{}(", name(c.kind));
  if (c.kind == Call::all_reduce || c.kind == Call::reduce_scatter || c.kind == Call::reduce)
    text += fmt::format("{}, ", name(c.op));
  text += fmt::format("{}[{}]", c.dtype, c.numel);
  if (c.kind == Call::send) text += fmt::format(", to {}", c.peer);
  else if (c.kind == Call::recv) text += fmt::format(", from {}", c.peer);
  else if (c.peer >= 0) text += fmt::format(", root {}", c.peer);
  return text + ")";
}

std::string located(const Call& c) {
  return fmt::format("{}   {}:{}", describe(c), c.place.file, c.place.line);
}

}  // namespace triax::parallel
