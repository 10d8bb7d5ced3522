#pragma once
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "triax/parallel/comm/group.h"

namespace triax::parallel {

/// A group, and what tells its communicator from others of the same name and ranks: numbers of the
/// splits that made it, alike on all its ranks.
struct LoggedGroup : Group {
  LoggedGroup(Group group, std::string of) : Group(std::move(group)), path(std::move(of)) {}
  std::string key() const { return str() + " " + path; }
  std::string path;
  int64_t noted = 0;  ///< calls
};

/// Keeps the last calls of one rank, for the report of a hang: NCCL does not compare what ranks
/// call. They are in memory until a rank makes no progress; then each writes its own to a folder
/// that all of them see, `triax-calls-JOB` in the directory of TRIAX_CALLS_DIR, else here.
class CallLog {
 public:
  static constexpr size_t kept = 2000;

  CallLog(const std::string& job, const Group& world);
  /// Notes the next call in this group.
  void note(const std::shared_ptr<LoggedGroup>& group, const Call& call);
  /// Writes the calls if another rank has asked for them.
  void answer();
  /// Asks all ranks for their calls, and waits some seconds. Returns Error 76 for the first call of
  /// this rank from which a peer's differs. If there is none, returns `stuck`, Error 72, with a
  /// line for each peer that has made fewer calls in `group` than this rank; and as it is if the
  /// file system does not answer. The log may outlive the call.
  static Error compare(const std::shared_ptr<CallLog>& log, const Error& stuck,
                       const std::shared_ptr<const LoggedGroup>& group);

 private:
  struct Noted {
    std::shared_ptr<const LoggedGroup> group;
    int64_t number;
    Call call;
  };
  struct Told {
    std::string what, text;  // what has to be alike in all ranks of the group; for the report
  };
  using Calls = std::map<std::string, std::map<int64_t, Told>>;  // by key and number

  Error compared(const Error& stuck, const LoggedGroup& group);
  std::optional<Calls> calls_of(int rank) const;
  std::optional<Error> difference(std::map<int, std::optional<Calls>>& all);

  std::filesystem::path folder_;
  int rank_;
  std::vector<int> world_;
  std::mutex mutex_;
  std::deque<Noted> calls_;
  bool written_ = false;
};

}  // namespace triax::parallel
