#pragma once
#include <functional>
#include <string>
#include <vector>

#include "triax/parallel/comm/communicator.h"

// Texts, numbers and errors among ranks, as tensors on the CPU. All calls are collective, and
// return only after every rank has made them.
namespace triax::parallel {

/// Returns rank 0's text, on every rank.
std::string broadcast_text(Communicator& ranks, const std::string& text);

/// Returns on rank 0 the texts of all ranks, in their order; empty elsewhere.
std::vector<std::string> gather_text(Communicator& ranks, const std::string& text);

/// Returns, on every rank, the sum of the ranks' numbers, or the largest or smallest of them.
template <class T>
T reduced(Communicator& ranks, T mine, ReduceOp op, Place place = Place::here()) {
  Tensor x = from_host(std::vector{mine}, {1}, cpu);
  ranks.all_reduce(x, op, place).wait();
  return x.to_host<T>()[0];
}

/// Returns, on every rank, the numbers of all ranks in their order, equally many of each.
template <class T>
std::vector<T> numbers_of_all(Communicator& ranks, const std::vector<T>& mine,
                              Place place = Place::here()) {
  Tensor own = from_host(mine, {std::ssize(mine)}, cpu);
  Tensor all = zeros({ranks.size(), own.numel()}, own.dtype(), cpu);
  ranks.all_gather(own, all, place).wait();
  return all.to_host<T>();
}

/// Does `work`, then waits for all: a barrier that carries success or failure. If the work failed
/// on any rank, every rank throws the Error of the lowest one that failed.
void together(Communicator& ranks, const std::function<void()>& work);

/// Like `together`, with work that only rank 0 does.
void on_first(Communicator& ranks, const std::function<void()>& work);
/// Returns, on every rank, the text that rank 0's work returns.
std::string text_of_first(Communicator& ranks, const std::function<std::string()>& work);

/// Rethrows, in a catch (...), with `place` in front of the text. An Error keeps its code, another
/// std::exception becomes Error 70, or 74 if a stream threw it. Out of memory, the loss of a peer
/// and anything that is no std::exception stay as they are.
[[noreturn]] void rethrow_from(const std::string& place);

}  // namespace triax::parallel
