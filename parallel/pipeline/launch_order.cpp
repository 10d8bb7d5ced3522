#include "parallel/pipeline/launch_order.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"

namespace triax::parallel {
namespace {

/// A rank's side of a message.
struct Transfer {
  Handover what;
  size_t after;     // the actions of its stage that come before it
  int before = -1;  // the number of the transfer before it on its channel
};

/// The state of a stage: two numbers, since its transfers start in the order of their calls.
struct Stage {
  const Actions* list;
  std::vector<Transfer> calls = {};
  size_t started = 0, done = 0;
  bool ended() const { return started == calls.size() && done == list->size(); }
};

class Gpus {
 public:
  Gpus(const std::vector<Actions>& lists, const PipelineShape& shape) : shape_(shape) {
    for (int stage = 0; stage < shape.stages; ++stage) call(stage, lists[size_t(stage)]);
  }

  /// Runs all stages, in any order: a transfer or action that may start stays able to.
  std::string run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int s = 0; s < shape_.stages; ++s)
        while (start_next(s) || do_next(s)) moved = true;
    }
    std::vector<std::string> waits;
    for (int s = 0; s < shape_.stages; ++s)
      if (!at(s).ended()) waits.push_back(wait_of(s));
    return join(waits, "; ");
  }

 private:
  Stage& at(int stage) { return stages_[size_t(stage)]; }

  void call(int stage, const Actions& list) {
    Stage s{.list = &list};
    std::map<std::pair<int, Handover::Kind>, int> last;  // by channel
    auto add = [&](const std::optional<Handover>& t, size_t after) {
      if (!t || stays(shape_, *t)) return;
      auto [before, first] = last.try_emplace({link_of(shape_, *t), t->kind}, -1);
      numbers_[{stage, *t}] = s.calls.size();
      s.calls.push_back({*t, after, std::exchange(before->second, int(s.calls.size()))});
    };
    for (size_t i = 0; i < list.size(); ++i) {
      add(received_by(shape_, stage, list[i]), i);
      add(sent_by(shape_, stage, list[i]), i + 1);
    }
    stages_.push_back(std::move(s));
  }

  bool is_over(const Handover& t) {
    auto has_started = [&](int end) {
      int stage = shape_.stage_of(end);
      return numbers_.at({stage, t}) < at(stage).started;
    };
    return has_started(t.from) && has_started(t.to);
  }

  bool start_next(int stage) {
    Stage& s = at(stage);
    if (s.started == s.calls.size() || s.done < s.calls[s.started].after) return false;
    int before = s.calls[s.started].before;
    if (before >= 0 && !is_over(s.calls[size_t(before)].what)) return false;
    ++s.started;
    return true;
  }

  bool do_next(int stage) {
    Stage& s = at(stage);
    if (s.done == s.list->size()) return false;
    auto input = received_by(shape_, stage, (*s.list)[s.done]);
    if (input && !stays(shape_, *input) && !is_over(*input)) return false;
    ++s.done;
    return true;
  }

  std::string wait_of(int stage) {
    Stage& s = at(stage);
    std::string where = s.done == s.list->size()
                            ? "at the end of its list"
                            : fmt::format("position {} ({})", s.done, str((*s.list)[s.done]));
    int before = s.started < s.calls.size() ? s.calls[s.started].before : -1;
    bool queued = before >= 0 && !is_over(s.calls[size_t(before)].what);
    Handover open = queued ? s.calls[size_t(before)].what
                           : received_by(shape_, stage, (*s.list)[s.done]).value();
    bool sends = shape_.stage_of(open.from) == stage;
    return fmt::format("stage {}, {}, waits for stage {} to {} the {}", stage, where,
                       shape_.stage_of(sends ? open.to : open.from), sends ? "take" : "send",
                       str(open));
  }

  const PipelineShape& shape_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, Handover>, size_t> numbers_;  // the number of a call, by stage
};

/// Returns the next larger number of micro-batches that works; 0: none up to 4 * stages more.
int next_that_works(const Schedule& schedule, PipelineShape shape) {
  for (int more = 0; more < 4 * shape.stages; ++more) {
    ++shape.micros;
    try {
      if (hang_over_nccl(lists_of(schedule, shape), shape).empty()) return shape.micros;
    } catch (const Error&) {  // the lists of a file fit one number
    }
  }
  return 0;
}

}  // namespace

std::string hang_over_nccl(const std::vector<Actions>& lists, const PipelineShape& shape) {
  return Gpus(lists, shape).run();
}

void check_over_nccl(const Schedule& schedule, const PipelineShape& shape) {
  std::string hang = hang_over_nccl(lists_of(schedule, shape), shape);
  if (hang.empty()) return;
  int next = next_that_works(schedule, shape);
  std::string other =
      next ? fmt::format("{} micro-batches (--global-batch divided by dp and --micro-batch), or ",
                         next)
           : "";
  fail(Exit::config,
       "schedule: {} micro-batches on {} stages hang over NCCL, which starts a GPU's transfers in "
       "the order of their calls: {}\n  Take {}another --schedule, such as 1f1b or zb-h1.",
       shape.micros, shape.stages, hang, other);
}

}  // namespace triax::parallel
