#include "parallel/checkpoint/background.h"

#include <chrono>

#include "core/memory.h"

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

}  // namespace

BackgroundSave::BackgroundSave(CheckpointDirectory& to, Communicator& ranks, int64_t step,
                               const std::vector<Piece>& pieces, CheckpointState state)
    : to_(to), ranks_(ranks), state_(std::move(state)) {
  std::vector<Piece> copies;
  together(ranks_, [&] { copies = copies_of(pieces); });
  checkpoint_ = to_.begin(step);
  auto write = [this, copies = std::move(copies), stop = stop_.get_token()]() mutable {
    auto mine = std::move(copies);  // which go as soon as they are written
    return to_.write(checkpoint_, mine, stop);
  };
  // Where no thread can be had, commit() writes.
  written_ = std::async(std::launch::async | std::launch::deferred, std::move(write));
}

BackgroundSave::~BackgroundSave() {
  if (!written_.valid()) return;  // commit() has asked for it
  stop_.request_stop();
  written_.wait();
  to_.abandon(checkpoint_);
}

bool BackgroundSave::done() {
  bool writes = written_.wait_for(std::chrono::seconds(0)) == std::future_status::timeout;
  Tensor writing = full({1}, writes, f64, cpu);
  ranks_.all_reduce(writing, ReduceOp::max).wait();
  return writing.item() == 0;
}

void BackgroundSave::commit() {
  to_.commit(
      checkpoint_, [this] { return written_.get(); }, state_);
}

}  // namespace triax::parallel
