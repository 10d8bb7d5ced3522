#include "triax/parallel/pipeline/synthesis/list_scheduler.h"

#include <algorithm>

namespace triax::parallel::synthesis {

bool has_weights(const Actions& list) {
  return std::ranges::count(list, Action::backward_weight, &Action::kind) > 0;
}

ListScheduler::ListScheduler(const Problem& problem) : p_(problem) {
  lists_.resize(size_t(p_.shape.stages));
  for (Actions& list : lists_) list.reserve(3 * size_t(p_.shape.chunks) * size_t(p_.shape.micros));
  for (const Durations& t : p_.times) work_ += p_.shape.micros * total(t);
}

void ListScheduler::begin(const Policy& policy, const std::vector<Actions>* order) {
  policy_ = &policy;
  order_ = order;
  most_idle_ = 0;
  tells_weights_ = order && has_weights(order->front());
  size_t passes = size_t(p_.virtual_stages()) * size_t(p_.shape.micros);
  stages_.assign(size_t(p_.shape.stages), {});
  pieces_.assign(size_t(p_.virtual_stages()), {});
  for (int v = 0; v < p_.virtual_stages(); ++v) {
    int stage = pieces_[size_t(v)].stage = p_.shape.stage_of(v);
    stages_[size_t(stage)].left += p_.shape.micros * total(p_.times[size_t(v)]);
  }
  forwards_sent_.assign(passes, infinity);
  inputs_sent_.assign(passes, infinity);
  std::fill_n(forwards_sent_.begin(), p_.shape.micros, 0.);  // the first stage reads its batches
  for (Actions& list : lists_) list.clear();
}

Score ListScheduler::run(const Policy& policy, double limit, const std::vector<Actions>* order) {
  begin(policy, order);
  for (int s = 0; s < p_.shape.stages; ++s) stages_[size_t(s)].choice = choose(s);
  for (int64_t all = actions_done_ + actions(); actions_done_ < all;) {
    auto first = std::min_element(stages_.begin(), stages_.end(),
                                  [](auto& a, auto& b) { return a.choice.at < b.choice.at; });
    int s = int(first - stages_.begin());
    if (first->choice.kind == Action::backward_weight && (*policy_)[size_t(s)].idle == 0) {
      first->choice = choose(s);  // others may have become more idle since
      if (first->choice.kind != Action::backward_weight) continue;
    }
    actions_done_ += first->choice.kind == Action::backward ? 2 : 1;
    if (first->choice.at == infinity) return {};
    take(s);
    if (span(*first) + first->left > limit + p_.rounding) return {};
    for (int other : changed_) stages_[size_t(other)].choice = choose(other);
  }
  return score();
}

const Action* ListScheduler::told(const Stage& stage, int s) const {
  const Actions& list = (*order_)[size_t(s)];
  return stage.next < list.size() ? &list[stage.next] : nullptr;
}

/// True if stage s has room for a forward. One of an earlier chunk leaves some for one of the last,
/// or nothing would ever end.
bool ListScheduler::may_begin(int s, int chunk) const {
  const Stage& x = stages_[size_t(s)];
  double one = p_.activation, spare = (*policy_)[size_t(s)].room;
  if (p_.shape.chunks > 1)
    spare = order_ || chunk + 1 == p_.shape.chunks ? 0 : std::max(one, spare);
  return fits(s, x.forwards - x.inputs, x.inputs - x.weights, one + spare);
}

/// Returns when the next forward or backward of virtual stage v has received its input.
double ListScheduler::arrival(int v, Action::Kind kind) const {
  const Piece& n = pieces_[size_t(v)];
  bool forward = kind == Action::forward;
  int cut = forward ? v - 1 : v;  // the virtual stage below
  double at = forward ? forwards_sent_[slot(v, n.forwards)] : inputs_sent_[slot(v, n.inputs)];
  if (cut < 0) return at;
  return std::max(at, forward ? n.forward_taken : n.input_taken) + p_.times[size_t(cut)].latency;
}

/// Returns the next candidates, later chunks first: they free memory. A backward for whose growth
/// there is no room is done as a whole, which needs none; its weights come after earlier ones.
ListScheduler::Candidates ListScheduler::candidates(int s) {
  const Stage& x = stages_[size_t(s)];
  const Action* next = order_ ? told(x, s) : nullptr;
  bool splits = p_.growth == 0 || fits(s, x.forwards - x.inputs, x.inputs - x.weights, p_.growth);
  Candidates all;
  if (!splits) all.input.kind = Action::backward;
  auto offer = [&](Choice& best, int chunk) {
    double at = std::max(x.free, arrival(p_.shape.virtual_stage(s, chunk), best.kind));
    if (at < best.at - p_.rounding) best.at = at, best.chunk = chunk;
  };
  auto may = [&](Action::Kind kind, int chunk) {
    return !order_ || (next && next->kind == kind && next->chunk == chunk);
  };
  for (int chunk = p_.shape.chunks - 1; chunk >= 0; --chunk) {
    const Piece& n = piece(s, chunk);
    bool may_weigh = !tells_weights_ || may(Action::backward_weight, chunk);
    if (n.weights < n.inputs && all.weight < 0 && may_weigh) all.weight = chunk;
    if (n.forwards < p_.shape.micros && may(Action::forward, chunk) && may_begin(s, chunk))
      offer(all.forward, chunk);
    if (n.inputs < n.forwards && may(Action::backward_input, chunk) &&
        (splits || n.weights == n.inputs))
      offer(all.input, chunk);
  }
  return all;
}

bool ListScheduler::prefers_forward(int s, const Candidates& c) const {
  const Stage& x = stages_[size_t(s)];
  const StagePolicy& k = (*policy_)[size_t(s)];
  if (c.input.chunk < 0 || c.forward.chunk < 0) return c.input.chunk < 0;
  int left = p_.shape.chunks * p_.shape.micros - x.forwards;
  bool goes_first = x.forwards < k.warm || left < k.tail || (k.turns && x.last != Action::forward);
  if (goes_first) {
    double waits = k.backward_waits * p_.times_of(s, c.input.chunk).backward_input;
    return c.forward.at <= c.input.at + waits;
  }
  double waits =
      (x.inputs < k.early ? 1 : k.forward_waits) * p_.times_of(s, c.forward.chunk).forward;
  return c.input.at > c.forward.at + waits + p_.rounding;
}

ListScheduler::Choice ListScheduler::choose(int s) {
  Candidates c = candidates(s);
  const Stage& x = stages_[size_t(s)];
  const StagePolicy& k = (*policy_)[size_t(s)];
  double wait = std::min(c.forward.at, c.input.at) - x.free;
  if (c.weight >= 0) {
    double takes = p_.times_of(s, c.weight).backward_weight;
    double idle = k.idle == 0 ? most_idle_ : k.idle, after = x.idle + wait - p_.rounding;
    bool soon = wait < std::max(p_.rounding, k.weight_waits * takes);
    bool may_wait = wait < takes - p_.rounding && after <= idle;
    if (!soon && !may_wait) return {Action::backward_weight, c.weight, x.free};
  }
  if (x.began >= 0 && wait < infinity) most_idle_ = std::max(most_idle_, x.idle + wait);
  return prefers_forward(s, c) ? c.forward : c.input;
}

/// Runs the action that stage `s` chose.
void ListScheduler::take(int s) {
  Stage& x = stages_[size_t(s)];
  const Choice now = x.choice;
  int v = p_.shape.virtual_stage(s, now.chunk);
  const Durations& t = p_.times[size_t(v)];
  Piece& n = pieces_[size_t(v)];
  changed_.assign(1, s);
  if (x.began < 0) x.began = now.at;
  else x.idle += now.at - x.free;
  if (now.kind != Action::backward_weight) x.last = now.kind;
  if (now.kind != Action::backward_weight || tells_weights_) ++x.next;
  int micro = 0;
  double takes = t.backward_input;
  switch (now.kind) {
    case Action::forward:
      n.forward_taken = now.at;
      micro = n.forwards++, ++x.forwards;
      takes = t.forward;
      break;
    case Action::backward_weight:
      micro = n.weights++, ++x.weights;
      takes = t.backward_weight;
      break;
    default:
      n.input_taken = now.at;
      micro = n.inputs++, ++x.inputs;
      if (now.kind == Action::backward) {
        ++n.weights, ++x.weights;
        takes += t.backward_weight;
      }
  }
  x.free = now.at + takes, x.left -= takes;
  lists_[size_t(s)].push_back({now.kind, now.chunk, micro});
  hand_on(v, now, micro, x.free);
}

/// Hands a result to the stage that waits for it, whose choice it may change. After the last
/// virtual stage a forward is followed by its own backward.
void ListScheduler::hand_on(int v, const Choice& choice, int micro, double end) {
  if (choice.kind == Action::backward_weight) return;
  bool up = choice.kind == Action::forward, turns = up && v + 1 == p_.virtual_stages();
  int to = turns ? v : up ? v + 1 : v - 1;
  if (to < 0) return;
  (up && !turns ? forwards_sent_ : inputs_sent_)[slot(to, micro)] = end;
  if (!turns) changed_.push_back(pieces_[size_t(to)].stage);
}

Score ListScheduler::score() const {
  double most = 0, sum = 0;
  for (const Stage& x : stages_) {
    most = std::max(most, span(x));
    sum += span(x);
  }
  return {most, most + softness * sum / p_.shape.stages};
}

}  // namespace triax::parallel::synthesis
