#include "parallel/train/watch/chrome_trace.h"

#include <algorithm>
#include <tuple>

#include "core/check.h"
#include "core/io/json.h"

namespace triax::parallel {
namespace {

class Events {
 public:
  explicit Events(const TracedRank& of) : of_(of) {}

  /// Adds an event; `kind`: the format's `ph`.
  void add(char kind, const std::string& name, const std::string& fields) {
    text_ +=
        fmt::format(R"({}{{"ph":"{}","pid":{},"tid":{},"name":{},{}}})", text_.empty() ? "" : ",\n",
                    kind, of_.rank + 1, of_.rank + 1, nn::quoted(name), fields);
  }
  /// Returns microseconds since the trace began.
  std::string at(int64_t time) const { return micros(time - of_.zero); }
  static std::string micros(int64_t nanos) {
    return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
  }
  std::string text() && { return std::move(text_); }

 private:
  const TracedRank& of_;
  std::string text_;
};

}  // namespace

std::string trace_events(const Profile& p, const TracedRank& of) {
  Events events(of);
  std::string title = nn::quoted(of.name);
  events.add('M', "process_name", fmt::format(R"("args":{{"name":{}}})", title));
  events.add('M', "process_sort_index", fmt::format(R"("args":{{"sort_index":{}}})", of.rank));
  events.add('M', "thread_name", fmt::format(R"("args":{{"name":{}}})", title));
  std::vector<Profile::Slice> slices(p.slices().rbegin(), p.slices().rend());
  std::stable_sort(slices.begin(), slices.end(), [](auto& a, auto& b) {  // the outer one first
    return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
  });
  for (auto& s : slices)
    events.add('X', s.name,
               fmt::format(R"("cat":"{}","ts":{},"dur":{})", name(s.what), events.at(s.begin),
                           Events::micros(s.end - s.begin)));
  size_t number = 0;
  for (auto& o : p.operations()) {
    std::string id = fmt::format(R"("cat":"operation","id2":{{"local":"{:#x}"}})", ++number);
    events.add('b', o.name,
               fmt::format(R"({},"ts":{},"args":{{"call":{},"group":{},"bytes":{}}})", id,
                           events.at(o.begin), nn::quoted(o.call), nn::quoted(o.group), o.bytes));
    events.add('e', o.name, fmt::format(R"({},"ts":{})", id, events.at(o.end)));
  }
  return std::move(events).text();
}

std::string trace_text(const TraceHead& head, const std::vector<std::string>& events) {
  return fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"steps\":[{},{}],\"schedule\":{},\"placement\":\"{}\","
      "\"ranks\":[\n{}],\n\"traceEvents\":[\n{}]}}\n",
      head.first, head.last, nn::quoted(head.schedule), name(head.placement),
      join(head.ranks, ",\n"), join(events, ",\n"));
}

}  // namespace triax::parallel
