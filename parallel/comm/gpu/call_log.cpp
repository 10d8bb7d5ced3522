#include "parallel/comm/gpu/call_log.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "core/check.h"

namespace triax::parallel {
namespace {

namespace fs = std::filesystem;

/// The time that other ranks, which look once a second, have to write their calls.
constexpr auto time_to_answer = std::chrono::milliseconds(2500);

std::string file_of(int rank) { return fmt::format("rank-{}.txt", rank); }

/// Returns what ranks of a group must call alike: of a message between two, what it carries; those
/// of larger groups have no common number.
std::string alike(const Call& c, const Group& group) {
  if (!c.is_message()) return describe(c);
  return group.size() == 2 ? fmt::format("message {}[{}]", c.dtype, c.numel) : "message";
}

}  // namespace

CallLog::CallLog(const std::string& job, const Group& world)
    : rank_(world.rank), world_(world.members) {
  const char* here = std::getenv("TRIAX_CALLS_DIR");
  folder_ = fs::path(here ? here : ".") / ("triax-calls-" + job);
}

void CallLog::note(std::shared_ptr<const Group> group, int64_t number, const Call& call) {
  std::lock_guard guard(mutex_);
  calls_.push_back({std::move(group), number, call});
  if (calls_.size() > kept) calls_.pop_front();
}

void CallLog::answer() {
  std::error_code none;
  if (written_ || !fs::exists(folder_, none)) return;
  std::lock_guard guard(mutex_);
  std::ofstream out(folder_ / file_of(rank_));
  for (const Noted& n : calls_)
    out << fmt::format("{}\t{}\t{}\t{}\n", n.group->str(), n.number, alike(n.call, *n.group),
                       located(n.call));
  written_ = true;
}

std::optional<CallLog::Calls> CallLog::calls_of(int rank) const {
  std::ifstream in(folder_ / file_of(rank));
  if (!in) return std::nullopt;
  Calls calls;
  std::string group, number, what, text;
  while (std::getline(in, group, '\t') && std::getline(in, number, '\t') &&
         std::getline(in, what, '\t') && std::getline(in, text))
    calls[group][std::atoll(number.c_str())] = {what, text};
  return calls;
}

Error CallLog::compare(const Error& stuck, const Group& group) {
  std::error_code none;
  fs::create_directories(folder_, none);
  answer();
  std::this_thread::sleep_for(time_to_answer);
  std::map<int, std::optional<Calls>> all;
  for (int rank : world_) all[rank] = calls_of(rank);
  std::string behind, of = group.str(),
                      folder = fmt::format("\n  Calls of all: {}", folder_.string());
  if (auto other = difference(all))
    return Error(Exit::mismatch, other->what() + folder, other->place());
  auto last = [&](int rank) {
    return all[rank] && !(*all[rank])[of].empty() ? (*all[rank])[of].rbegin()->first : 0;
  };
  for (int peer : group.members) {
    auto& its = all[peer];
    if (!its) behind += fmt::format("\n  Rank {} has not said what it called.", peer);
    else if ((*its)[of].empty())
      behind += fmt::format("\n  Rank {} has called nothing there.", peer);
    else if (last(peer) < last(rank_))
      behind += fmt::format("\n  Rank {} has made {} calls there, the last {}", peer,
                            (*its)[of].rbegin()->first, (*its)[of].rbegin()->second.text);
  }
  return Error(stuck.code(), stuck.what() + behind + folder, stuck.place());
}

std::optional<Error> CallLog::difference(std::map<int, std::optional<Calls>>& all) {
  std::lock_guard guard(mutex_);
  for (const Noted& n : calls_)
    for (int peer : n.group->members) {
      std::string of = n.group->str();
      auto& its = all[peer];
      if (!its || !(*its)[of].contains(n.number)) continue;
      const Told& other = (*its)[of][n.number];
      if (other.what == alike(n.call, *n.group)) continue;
      return Error(Exit::mismatch,
                   fmt::format("ranks disagree, group {}, call {}\n  rank {}: {}\n  rank {}: {}",
                               of, n.number, rank_, located(n.call), peer, other.text),
                   str(n.call.place));
    }
  return std::nullopt;
}

}  // namespace triax::parallel
