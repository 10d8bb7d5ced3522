#include "triax/parallel/checkpoint/background.h"

#include <chrono>

#include "triax/core/memory.h"

namespace triax::parallel {
namespace {

std::vector<Piece> copies_of(const std::vector<Piece>& pieces) {
  std::vector<Piece> copies;
  for (const Piece& p : pieces) {
    bool near = p.value.device() == cpu;
    memory::Scope scope(near ? memory::buffers : memory::offloaded);
    auto held = p.value.storage()->hold(Access::read);
    Tensor value = p.value.detach();
    copies.push_back({p.name, p.kind, p.part, near ? clone(value) : value.to(cpu)});
  }
  return copies;
}

/// Runs `work` on a thread, or, where no thread can be had, once it is waited for.
template <class Work> auto in_background(Work work) {
  return std::async(std::launch::async | std::launch::deferred, std::move(work));
}

template <class Result> bool busy(const std::future<Result>& of) {
  return of.valid() && of.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
}

}  // namespace

BackgroundSave::BackgroundSave(CheckpointDirectory& to, Communicator& ranks, int64_t step,
                               const std::vector<Piece>& pieces, CheckpointState state)
    : to_(to), ranks_(ranks), state_(std::move(state)) {
  std::vector<Piece> copies;
  together(ranks_, [&] { copies = copies_of(pieces); });
  checkpoint_ = to_.begin(step);
  written_ = in_background([this, copies = std::move(copies), stop = stop_.get_token()]() mutable {
    auto mine = std::move(copies);  // freed as soon as they are written
    return to_.write(checkpoint_, mine, stop);
  });
}

/// Ends, on rank 0, what it has begun to publish: all of it is on the disk. While ranks write, any
/// of them may remove the files: without this one, nobody publishes them.
BackgroundSave::~BackgroundSave() {
  if (published_.valid()) published_.wait();
  if (!written_.valid()) return;
  stop_.request_stop();
  written_.wait();
  to_.abandon(checkpoint_);
}

bool BackgroundSave::done() {
  Tensor works = full({1}, busy(written_) || busy(published_), f64, cpu);
  ranks_.all_reduce(works, ReduceOp::max).wait();
  if (works.item() != 0) return false;
  if (!written_.valid()) return true;
  publish();
  return false;
}

void BackgroundSave::publish() {
  auto reports = to_.collect(checkpoint_, [this] { return written_.get(); });
  if (ranks_.rank() != 0) return;
  published_ = in_background(
      [this, reports = std::move(reports)] { to_.publish(checkpoint_, reports, state_); });
}

void BackgroundSave::commit() {
  if (written_.valid()) publish();
  to_.conclude(checkpoint_, [this] { published_.get(); });
}

}  // namespace triax::parallel
