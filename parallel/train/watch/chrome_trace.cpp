#include "triax/parallel/train/watch/chrome_trace.h"

#include <algorithm>
#include <tuple>

#include "triax/core/check.h"
#include "triax/core/io/json.h"

namespace triax::parallel {
namespace {

std::string micros(int64_t nanos) { return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000); }

}  // namespace

std::string trace_events(const Profile& p, const TracedRank& of) {
  std::string text, title = nn::quoted(of.name);
  // Adds an event; `kind`: the format's `ph`.
  auto add = [&](char kind, const std::string& name, const std::string& fields) {
    text +=
        fmt::format(R"({}{{"ph":"{}","pid":{},"tid":{},"name":{},{}}})", text.empty() ? "" : ",\n",
                    kind, of.rank + 1, of.rank + 1, nn::quoted(name), fields);
  };
  auto at = [&](int64_t time) { return micros(time - of.zero); };  // since the trace began
  add('M', "process_name", fmt::format(R"("args":{{"name":{}}})", title));
  add('M', "process_sort_index", fmt::format(R"("args":{{"sort_index":{}}})", of.rank));
  add('M', "thread_name", fmt::format(R"("args":{{"name":{}}})", title));
  std::vector<Profile::Slice> slices(p.slices().rbegin(), p.slices().rend());
  std::stable_sort(slices.begin(), slices.end(), [](auto& a, auto& b) {  // the outer one first
    return std::tuple(a.begin, -a.end) < std::tuple(b.begin, -b.end);
  });
  for (auto& s : slices)
    add('X', s.name,
        fmt::format(R"("cat":"{}","ts":{},"dur":{})", name(s.what), at(s.begin),
                    micros(s.end - s.begin)));
  size_t number = 0;
  for (auto& o : p.operations()) {
    std::string id = fmt::format(R"("cat":"operation","id2":{{"local":"{:#x}"}})", ++number);
    add('b', o.name,
        fmt::format(R"({},"ts":{},"args":{{"call":{},"group":{},"bytes":{}}})", id, at(o.begin),
                    nn::quoted(o.call), nn::quoted(o.group), o.bytes));
    add('e', o.name, fmt::format(R"({},"ts":{})", id, at(o.end)));
  }
  return text;
}

std::string traced_rank(const MeshShape& shape, int rank, const std::array<double, 3>& seconds) {
  std::string place;
  for (const Axis& a : shape.axes())
    place += fmt::format(R"("{}":{},)", a.name, shape.place(rank, {a.name}));
  return fmt::format(R"({{"rank":{},{}"busy":{},"communicating":{},"waiting":{}}})", rank, place,
                     seconds[0], seconds[1], seconds[2]);
}

std::string trace_text(const TraceHead& head, const std::vector<std::string>& events) {
  return fmt::format(
      "{{\"displayTimeUnit\":\"ms\",\"steps\":[{},{}],\"schedule\":{},\"placement\":\"{}\","
      "\"ranks\":[\n{}],\n\"traceEvents\":[\n{}]}}\n",
      head.first, head.last, nn::quoted(head.schedule), name(head.placement),
      join(head.ranks, ",\n"), join(events, ",\n"));
}

}  // namespace triax::parallel
