#include "triax/parallel/comm/call.h"

#include "triax/core/check.h"

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

std::string str(Place place) {
  std::string_view file = place.file;
  while (file.starts_with("../")) file.remove_prefix(3);  // the compiler's path may begin so
  return fmt::format("{}:{}", file, place.line);
}

std::string located(const Call& c) {
  std::string table = c.table == 0 ? "" : fmt::format(" of table {:08x}", c.table);
  return fmt::format("{}{}   {}", describe(c), table, str(c.place));
}

Ledger::Line Ledger::total() const {
  Line sum;
  for (const Line& line : lines_) sum += line;
  return sum;
}

}  // namespace triax::parallel
