// Schedules of two chunks a stage in a V.
#include <deque>

#include "triax/core/check.h"
#include "triax/parallel/pipeline/building_block.h"

namespace triax::parallel {
namespace {

void check_v(const char* who, const PipelineShape& s, int stage) {
  check_arguments(who, s, stage);
  check_input(s.chunks == 2, Exit::config, "{}: {} chunk{} a stage; expected 2, down and up the V",
              who, s.chunks, s.chunks == 1 ? "" : "s");
  check_input(s.placement == Placement::v || s.stages == 1, Exit::config,
              "{}: the pieces of the model go round the ring of stages; expected them in a V", who);
}

struct Pass {
  Action::Kind kind;
  int chunk = 0;
};
constexpr Pass f0{Action::forward, 0}, f1{Action::forward, 1}, b0{Action::backward, 0},
    b1{Action::backward, 1}, i0{Action::backward_input, 0}, i1{Action::backward_input, 1},
    w{Action::backward_weight};

/// Makes a list of passes that each take the next micro-batch of their chunk, as long as there is
/// one: with few micro-batches some are left out. `w` is of the input pass that has waited longest.
class Writer {
 public:
  explicit Writer(int micros) : micros_(micros) {}

  Writer& add(int times, std::initializer_list<Pass> passes) {
    for (int i = 0; i < times; ++i)
      for (const Pass& p : passes) take(p);
    return *this;
  }
  Actions list() { return std::move(list_); }

 private:
  void take(const Pass& p) {
    if (p.kind == Action::backward_weight) {
      if (owed_.empty()) return;
      list_.push_back(owed_.front());
      owed_.pop_front();
      return;
    }
    bool forward = p.kind == Action::forward;
    int& next = (forward ? forwards_ : backwards_)[p.chunk];
    if (next == (forward ? micros_ : forwards_[p.chunk])) return;
    if (p.kind == Action::backward_input) owed_.push_back({Action::backward_weight, p.chunk, next});
    list_.push_back({p.kind, p.chunk, next++});
  }

  int micros_, forwards_[2] = {}, backwards_[2] = {};
  std::deque<Action> owed_;
  Actions list_;
};

}  // namespace

Actions zb_v(const PipelineShape& s, int stage) {
  check_v("schedule zb-v", s, stage);
  int after = s.stages - stage;  // stages from here to the turn of the V, with this one
  Writer list(s.micros);
  list.add(2 * after - 1, {f0});  // until the first is back
  list.add(stage, {f1, f0}).add(after, {f1, i1, w});
  list.add(s.micros - s.stages, {f0, i0, w, f1, i1, w});
  list.add(stage, {i0, i1}).add(after, {i0, w});  // weights wait, so that inputs go on at once
  return list.add(2 * s.micros, {w}).list();
}

std::vector<Actions> v_half(const PipelineShape& s) {
  check_v("schedule v-half", s, 0);
  auto block = make_block(s.stages, {2, 1, 2, 1}, {0, 0, s.stages % 2 == 0 ? 3 : 0, 0});
  return repeat(block, s.micros, (s.stages + 2) / 2 * 2);
}

std::vector<Actions> v_min(const PipelineShape& s) {
  check_v("schedule v-min", s, 0);
  auto block = make_block(s.stages, {1, 1, 1, 1}, {0, s.stages % 3 == 2 ? 1 : 0, 0, 0});
  return repeat(block, s.micros, (s.stages + 4) / 3 * 2);
}

std::vector<Actions> one_f_one_b_v(const PipelineShape& s) {
  check_v("schedule 1f1b-v", s, 0);
  auto block =
      make_block(s.stages, {1, 1, 2, 2}, {0, 0, s.stages % 3 == 0 ? 3 : 0, 0}, Action::backward);
  return repeat(block, s.micros, 2 * ((2 * s.stages + 2) / 3 + (s.stages % 3 == 0)));
}

Actions dualpipev(const PipelineShape& s, int stage) {
  check_v("schedule dualpipev", s, stage);
  int after = s.stages - stage - 1, here = stage + 1;
  Writer list(s.micros);
  list.add(2 * after, {f0}).add(here, {f0, f1}).add(after, {i1, w, f1});
  list.add(s.micros - 2 * s.stages + here, {f0, b1, f1, b0}).add(after, {b1, f1, b0});
  // Half of what is left goes back whole; of the rest the weights wait.
  list.add(here / 2, {b1, b0});
  if (here % 2 == 1) list.add(1, {b1, i0});
  list.add(here / 2, {i1, i0}).add(after, {w, i0});
  return list.add(2 * s.micros, {w}).list();
}

}  // namespace triax::parallel
