#pragma once
#include <optional>
#include <string>

#include "parallel/comm/communicator.h"

namespace triax::text {

/// Lines of standard input: the first rank reads, all get them.
class Lines {
 public:
  explicit Lines(parallel::Communicator& ranks) : ranks_(ranks) {}
  /// Returns a line without its break; none at the end of the input. Collective.
  std::optional<std::string> next();

 private:
  std::string look();

  parallel::Communicator& ranks_;
  std::string read_;  // bytes not given out yet
  bool ended_ = false;
};

/// Returns all of standard input, on every rank. Collective. Throws Error 74 if it cannot be read.
std::string all_of_stdin(parallel::Communicator& ranks);

}  // namespace triax::text
