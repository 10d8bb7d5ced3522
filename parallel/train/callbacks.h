#pragma once
#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/runs/report.h"

namespace triax::parallel {

/// Functions that a run calls at its usual places. Any may be empty. None may step or run. On all
/// ranks start, step and end may save and validate, and validation may save.
struct Callbacks {
  std::function<void(Trainer&)> start = {}, end = {};
  /// Is called before a step's update, when gradients are summed; not with CUDA graphs, which
  /// replay it.
  std::function<void(Trainer&)> gradients = {};
  std::function<void(Trainer&, const StepRecord&)> step = {};
  std::function<void(Trainer&, double loss)> validation = {};
  /// Gets the path of a checkpoint now on the disk: with `save_async`, an earlier step's.
  std::function<void(Trainer&, const std::string& path)> checkpoint = {};
  std::function<void(Trainer&, const std::exception&)> error = {};
  bool reads_weights = true;  ///< but in `error`; else it may run while weights are gathered
};
/// The ranks that a callback runs on; one that communicates has to run on all.
enum class On { all, first };

/// The callbacks of a run, and which of them is running.
class CallbackList {
 public:
  void add(Callbacks c, On where) { all_.push_back({std::move(c), where}); }
  /// True if one of those members reads weights.
  template <class Member> bool read_weights(Member member) const {
    return std::ranges::any_of(
        all_, [&](auto& c) { return c.calls.reads_weights && bool(c.calls.*member); });
  }
  /// Calls the member of each, named `name`. An error says after which step it came.
  template <class Member, class... Args>
  void call(Trainer& trainer, int64_t step, std::string_view name, Member member,
            const Args&... args) {
    for (auto& c : all_) {
      Scoped here(running_, std::optional(Running{name, c.where}));
      try {
        if (c.calls.*member) (c.calls.*member)(trainer, args...);
      } catch (...) {
        rethrow_from("callback after step " + std::to_string(step));
      }
    }
  }
  /// Throws Error 78 where `what` is called in a callback that is none of `allowed`, or that runs
  /// on the first rank alone: a function that all ranks must call would hang.
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
