#include "tests/gpu_on_cpu/races.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tests/gpu_on_cpu/device.h"

namespace triax::gpu_on_cpu {
namespace {

struct Entry {
  const char *begin, *end;
  bool writes;
  int stream;
  int64_t number;  // of the operation on its stream
  const char* what;

  bool meets(const Entry& other) const { return begin < other.end && other.begin < end; }
  bool holds(const Entry& other) const { return begin <= other.begin && other.end <= end; }
};

std::mutex mutex;
auto& entries = *new std::vector<Entry>;  // threads end late
auto& host = *new Clock;

int64_t at(const Clock& clock, int stream) {
  return size_t(stream) < clock.size() ? clock[size_t(stream)] : 0;
}

bool is_of_a_gpu(const void* data) {
  return data && std::ranges::any_of(memories(), [&](auto& m) { return m->holds(data); });
}

const char* kind(const Entry& e) { return e.writes ? "writes" : "reads"; }

[[noreturn]] void report(const Entry& first, const Entry& second) {
  std::fprintf(
      stderr,
      "gpu_on_cpu: race: %s on stream %d and %s on stream %d, which %s %zu bytes at %p and "
      "%s %zu at %p\n",
      first.what, first.stream, second.what, second.stream, kind(first),
      size_t(first.end - first.begin), static_cast<const void*>(first.begin), kind(second),
      size_t(second.end - second.begin), static_cast<const void*>(second.begin));
  std::abort();
}

/// Checks an access against those before it, and keeps it in place of what it is behind and covers.
void add(const Entry& now, const Clock& clock) {
  auto is_covered = [&](const Entry& before) {
    if (!before.meets(now)) return false;
    bool ordered = before.number <= at(clock, before.stream);
    if (!ordered && (before.writes || now.writes)) report(before, now);
    return ordered && now.holds(before) && (now.writes || !before.writes);
  };
  std::erase_if(entries, is_covered);
  entries.push_back(now);
}

}  // namespace

void join(Clock& into, const Clock& other) {
  into.resize(std::max(into.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i) into[i] = std::max(into[i], other[i]);
}

void touch(cudaStream_t stream, const char* what, std::initializer_list<Access> accesses) {
  if (!options().races || capturing(stream)) return;
  std::lock_guard guard(mutex);
  Clock& clock = stream->clock;
  join(clock, host);
  clock.resize(std::max(clock.size(), size_t(stream->number) + 1));
  int64_t number = ++clock[size_t(stream->number)];
  for (const Access& a : accesses) {
    auto* begin = static_cast<const char*>(a.data);
    if (a.bytes == 0 || !is_of_a_gpu(begin)) continue;
    add({begin, begin + a.bytes, a.writes, stream->number, number, what}, clock);
  }
}

Clock passed_by(cudaStream_t stream) {
  std::lock_guard guard(mutex);
  return stream->clock;
}

void stream_waits(cudaStream_t stream, const Clock& clock) {
  std::lock_guard guard(mutex);
  join(stream->clock, clock);
}

void host_waits_for(const Clock& clock) {
  std::lock_guard guard(mutex);
  join(host, clock);
}

void forget(const void* data, size_t bytes) {
  std::lock_guard guard(mutex);
  auto* begin = static_cast<const char*>(data);
  std::erase_if(entries,
                [&](const Entry& e) { return begin <= e.begin && e.begin < begin + bytes; });
}

}  // namespace triax::gpu_on_cpu
