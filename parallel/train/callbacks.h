#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parallel/comm/together.h"
#include "parallel/train/runs/report.h"

namespace triax::parallel {

/// Called at the usual places of a run. Any may be empty. None may step or run. On all ranks start,
/// step and end may save and validate, and validation may save.
struct Callbacks {
  std::function<void(Trainer&)> start = {}, end = {};
  std::function<void(Trainer&, const StepRecord&)> step = {};
  std::function<void(Trainer&, double loss)> validation = {};
  /// Of what is on the disk now: with `save_async`, of an earlier step.
  std::function<void(Trainer&, const std::string& path)> checkpoint = {};
  std::function<void(Trainer&, const std::exception&)> error = {};
};
/// On which ranks: what communicates has to be called on all.
enum class On { all, first };

/// The callbacks of a run, and which of them is running.
class CallbackList {
 public:
  void add(Callbacks c, On where) { all_.push_back({std::move(c), where}); }
  /// Calls a member of each, whose name is `name`. An error says after which step it came.
  template <class Member, class... Args>
  void call(Trainer& trainer, int64_t step, std::string_view name, Member member,
            const Args&... args) {
    for (auto& c : all_) {
      auto before = std::exchange(running_, Running{name, c.where});
      struct Restore {
        std::optional<Running>& now;
        std::optional<Running> before;
        ~Restore() { now = before; }
      } restore{running_, before};
      try {
        if (c.calls.*member) (c.calls.*member)(trainer, args...);
      } catch (...) {
        rethrow_from("callback after step " + std::to_string(step));
      }
    }
  }
  /// Throws Error 78 where `what` is called in a callback that is none of `allowed`, or of the
  /// first rank alone: what all ranks have to call would hang.
  void check(const char* what, const std::vector<std::string>& allowed) const;

 private:
  struct Registered {
    Callbacks calls;
    On where;
  };
  struct Running {
    std::string_view name;
    On where;
  };
  std::vector<Registered> all_;
  std::optional<Running> running_;
};

}  // namespace triax::parallel
