#include "parallel/comm/gpu/call_log.h"

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "core/check.h"

namespace triax::parallel {
namespace {

namespace fs = std::filesystem;

/// The time that other ranks, which look once a second, have to write their calls.
constexpr auto time_to_answer = std::chrono::milliseconds(2500);

fs::path folder_of(const std::string& job) {
  const char* here = std::getenv("TRIAX_CALLS_DIR");
  return fs::path(here ? here : ".") / ("triax-calls-" + job);
}

std::string file_of(int rank) { return fmt::format("rank-{}.txt", rank); }

/// True if both ranks made one call: the same collective, or a message that one sends.
bool fit(const Call& a, const Call& b, int ranks) {
  if (!a.is_message() || !b.is_message()) return a.matches(b);
  return ranks != 2 || (a.kind != b.kind && a.dtype == b.dtype && a.numel == b.numel);
}

}  // namespace

/// What another rank has written.
struct CallLog::Peer {
  int rank;
  std::map<std::string, std::map<int64_t, Call>> calls;  // by group and number
  std::deque<std::string> files;                         // of their places
  bool wrote = false;

  Peer(const fs::path& folder, int of) : rank(of) {
    std::ifstream in(folder / file_of(rank));
    wrote = bool(in);
    int kind = 0, op = 0, dtype = 0, line = 0;
    int64_t number = 0;
    std::string group, file, text;
    while (std::getline(in, text)) {
      Call call{};
      std::istringstream fields(text);
      fields >> number >> kind >> op >> dtype >> call.peer >> call.numel >> line;
      fields.ignore(1);
      if (!std::getline(fields, file, '\t') || !std::getline(fields, group)) continue;
      files.push_back(file);
      call.kind = Call::Kind(kind), call.op = ReduceOp(op), call.dtype = DType(dtype);
      call.place = {files.back().c_str(), line};
      calls[group][number] = call;
    }
  }
};

CallLog::CallLog(const std::string& job, const Group& world)
    : folder_(folder_of(job)), rank_(world.rank), all_(world.members) {}

void CallLog::note(std::shared_ptr<const Group> group, int64_t number, const Call& call) {
  std::lock_guard guard(mutex_);
  calls_.push_back({std::move(group), number, call});
  if (calls_.size() > kept) calls_.pop_front();
}

void CallLog::answer() {
  std::error_code none;
  if (written_ || !fs::exists(folder_, none)) return;
  write();
  written_ = true;
}

void CallLog::write() const {
  std::lock_guard guard(mutex_);
  std::ofstream out(folder_ / file_of(rank_));
  for (const Noted& n : calls_)
    out << fmt::format("{} {} {} {} {} {} {} {}\t{}\n", n.number, int(n.call.kind), int(n.call.op),
                       int(n.call.dtype), n.call.peer, n.call.numel, n.call.place.line,
                       n.call.place.file, n.group->str());
}

Error CallLog::compare(const Error& stuck, const Group& group) {
  std::error_code none;
  fs::create_directories(folder_, none);
  answer();
  std::this_thread::sleep_for(time_to_answer);
  std::vector<Peer> peers;
  for (int r : all_)
    if (r != rank_) peers.emplace_back(folder_, r);
  if (auto different = first_difference(peers)) return *different;
  auto mine = Peer(folder_, rank_).calls[group.str()];
  std::string text = stuck.what();
  for (Peer& peer : peers) {
    if (std::ranges::count(group.members, peer.rank) == 0) continue;
    auto& its = peer.calls[group.str()];
    if (!peer.wrote) text += fmt::format("\n  Rank {} has not said what it called.", peer.rank);
    else if (its.empty()) text += fmt::format("\n  Rank {} has called nothing there.", peer.rank);
    else if (!mine.empty() && its.rbegin()->first < mine.rbegin()->first)
      text += fmt::format("\n  Rank {} has made {} calls there, the last {}", peer.rank,
                          its.rbegin()->first, located(its.rbegin()->second));
  }
  return Error(stuck.code(), text + fmt::format("\n  Calls of all: {}", folder_.string()),
               stuck.place());
}

std::optional<Error> CallLog::first_difference(const std::vector<Peer>& peers) const {
  std::lock_guard guard(mutex_);
  for (const Noted& n : calls_)
    for (const Peer& peer : peers) {
      auto group = peer.calls.find(n.group->str());
      if (group == peer.calls.end()) continue;
      auto its = group->second.find(n.number);
      if (its == group->second.end() || fit(n.call, its->second, n.group->size())) continue;
      auto place = std::ranges::find(n.group->members, peer.rank) - n.group->members.begin();
      return disagreement(*n.group, n.number, {n.group->rank, n.call}, {int(place), its->second});
    }
  return std::nullopt;
}

}  // namespace triax::parallel
