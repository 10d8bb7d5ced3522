#pragma once
#include <string>
#include <vector>

namespace triax::parallel {

/// Which ranks form a communicator, and what it is called in messages.
struct Group {
  std::string name = "world";
  std::vector<int> members;  ///< world ranks, by rank in this group
  int rank = 0;              ///< mine
  /// How long an operation may wait for its peers, while this process is not suspended, before it
  /// is Error 72. Default: the environment
  /// variable TRIAX_TIMEOUT, else ten minutes.
  double time_limit = default_time_limit();
  static double default_time_limit();

  int size() const { return int(members.size()); }
  /// `tp {0, 1}`.
  std::string str() const;
};

}  // namespace triax::parallel
