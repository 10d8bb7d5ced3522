#include "triax/core/error.h"

#include "triax/core/check.h"

namespace triax {

void throw_error(Exit code, std::string&& what, const char* file, int line) {
  throw Error(code, what, fmt::format("{}:{}", file, line));
}

}  // namespace triax
