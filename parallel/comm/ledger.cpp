#include "parallel/comm/ledger.h"

#include "core/check.h"

namespace triax::parallel {

Ledger::Line Ledger::total() const {
  Line sum;
  for (const Line& line : lines_) {
    sum.calls += line.calls;
    sum.bytes += line.bytes;
  }
  return sum;
}

std::string Ledger::str() const {
  std::string text;
  for (int k = 0; k < Call::kinds; ++k)
    if (const Line& line = lines_[size_t(k)]; line.calls)
      text +=
          fmt::format("{}: {} calls, {:.0f} bytes\n", name(Call::Kind(k)), line.calls, line.bytes);
  return text;
}

}  // namespace triax::parallel
