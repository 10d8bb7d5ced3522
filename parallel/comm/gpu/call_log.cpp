#include "triax/parallel/comm/gpu/call_log.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <thread>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

namespace fs = std::filesystem;

/// The time that other ranks, which look once a second, have to write their calls, and that the
/// file system has for all.
constexpr auto time_to_answer = std::chrono::milliseconds(2500),
               time_to_compare = 4 * time_to_answer;

std::string file_of(int rank) { return fmt::format("rank-{}.txt", rank); }

/// Returns what ranks of a group must call alike: of a message between two, what it carries.
std::string alike(const Call& c) {
  return c.is_message() ? fmt::format("message {}[{}]", c.dtype, c.numel) : describe(c);
}

}  // namespace

CallLog::CallLog(const std::string& job, const Group& world)
    : rank_(world.rank), world_(world.members) {
  const char* here = std::getenv("TRIAX_CALLS_DIR");
  folder_ = fs::path(here ? here : ".") / ("triax-calls-" + job);
}

// Messages among more than two ranks have no number that is alike on all of them.
void CallLog::note(const std::shared_ptr<LoggedGroup>& group, const Call& call) {
  if (call.is_message() && group->size() > 2) return;
  std::lock_guard guard(mutex_);
  calls_.push_back({group, ++group->noted, call});
  if (calls_.size() > kept) calls_.pop_front();
}

void CallLog::answer() {
  std::error_code none;
  std::lock_guard guard(mutex_);
  if (written_ || !fs::exists(folder_, none)) return;
  std::ofstream out(folder_ / file_of(rank_));
  for (const Noted& n : calls_)
    out << fmt::format("{}\t{}\t{}\t{}\n", n.group->key(), n.number, alike(n.call),
                       located(n.call));
  written_ = true;
}

std::optional<CallLog::Calls> CallLog::calls_of(int rank) const {
  std::ifstream in(folder_ / file_of(rank));
  if (!in) return std::nullopt;
  Calls calls;
  std::string key, number, what, text;
  while (std::getline(in, key, '\t') && std::getline(in, number, '\t') &&
         std::getline(in, what, '\t') && std::getline(in, text))
    calls[key][std::atoll(number.c_str())] = {what, text};
  return calls;
}

Error CallLog::compare(const std::shared_ptr<CallLog>& log, const Error& stuck,
                       const std::shared_ptr<const LoggedGroup>& group) {
  std::promise<Error> promise;
  auto answer = promise.get_future();
  std::thread([log, stuck, group, promise = std::move(promise)]() mutable {
    promise.set_value(log->compared(stuck, *group));
  }).detach();
  bool in_time = answer.wait_for(time_to_compare) == std::future_status::ready;
  return in_time ? answer.get() : stuck;
}

Error CallLog::compared(const Error& stuck, const LoggedGroup& group) {
  std::error_code none;
  fs::create_directories(folder_, none);
  answer();
  std::this_thread::sleep_for(time_to_answer);
  std::map<int, std::optional<Calls>> all;
  for (int rank : world_) all[rank] = calls_of(rank);
  if (!all[rank_])
    return Error(stuck.code(),
                 fmt::format("{}\n  Calls were not compared: {} cannot be written; TRIAX_CALLS_DIR "
                             "names another directory.",
                             stuck.what(), folder_.string()),
                 stuck.place());
  std::string folder = fmt::format("\n  Calls of all: {}", folder_.string()), behind;
  if (auto other = difference(all))
    return Error(other->code(), other->what() + folder, other->place());
  auto last = [&, key = group.key()](int rank) {
    auto& calls = (*all[rank])[key];
    return calls.empty() ? Calls::mapped_type::value_type() : *calls.rbegin();
  };
  for (int peer : group.members) {
    if (!all[peer]) behind += fmt::format("\n  Rank {} has not said what it called.", peer);
    else if (auto [number, call] = last(peer); number == 0)
      behind += fmt::format("\n  Rank {} has called nothing there, as far as it knows.", peer);
    else if (number < last(rank_).first)
      behind +=
          fmt::format("\n  Rank {} has made {} calls there, the last {}", peer, number, call.text);
  }
  return Error(stuck.code(), stuck.what() + behind + folder, stuck.place());
}

std::optional<Error> CallLog::difference(std::map<int, std::optional<Calls>>& all) {
  std::lock_guard guard(mutex_);
  for (const Noted& n : calls_)
    for (int peer : n.group->members) {
      auto& its = all[peer];
      std::string key = n.group->key();
      if (peer == rank_ || !its || !(*its)[key].contains(n.number)) continue;
      const Told& other = (*its)[key][n.number];
      if (other.what == alike(n.call)) continue;
      return Error(Exit::mismatch,
                   fmt::format("ranks disagree, group {}, call {}\n  rank {}: {}\n  rank {}: {}",
                               n.group->str(), n.number, rank_, located(n.call), peer, other.text),
                   str(n.call.place));
    }
  return std::nullopt;
}

}  // namespace triax::parallel
