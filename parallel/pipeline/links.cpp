#include "triax/parallel/pipeline/links.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// The place of a stage in a round of links: at none, or at one end of one.
struct LinkEnd {
  int link = -1;
  int rank = 0;  // 0: the end that activations come from
};
using Round = std::vector<LinkEnd>;  // by stage

/// Returns the rounds. A split gives each stage to one link only, so links are made in rounds: on a
/// ring the even ones, the odd ones, and with an odd number of stages the last alone.
std::vector<Round> rounds_of(const PipelineShape& shape) {
  std::vector<Round> rounds;
  std::set<int> known;
  for (int v = 0; v + 1 < shape.virtual_stages(); ++v) {
    Handover on{.from = v, .to = v + 1};
    int link = link_of(shape, on);
    if (stays(shape, on) || !known.insert(link).second) continue;
    auto from = size_t(shape.stage_of(v)), to = size_t(shape.stage_of(v + 1));
    auto round = std::find_if(rounds.begin(), rounds.end(),
                              [&](Round& r) { return r[from].link < 0 && r[to].link < 0; });
    if (round == rounds.end()) round = rounds.insert(round, Round(size_t(shape.stages)));
    (*round)[from] = {link, 0}, (*round)[to] = {link, 1};
  }
  return rounds;
}

}  // namespace

Links::Links(Communicator& stages, const PipelineShape& shape) : shape_(shape) {
  auto rounds = rounds_of(shape);
  int channels = std::max(8, 2 * int(rounds.size()));  // at most so many of a stage
  for (const Round& round : rounds)
    for (auto kind : {Handover::activation, Handover::gradient}) {
      int mine = round[size_t(stages.rank())].link;
      auto comm = stages.split(
          [&](int stage) {
            auto [link, rank] = round[size_t(stage)];
            return Communicator::Seat{link >= 0 ? link : shape.virtual_stages() + stage, rank};
          },
          fmt::format("link {} {}", mine, kind == Handover::activation ? "up" : "down"),
          {.part = 4 * channels, .messages = true});
      if (mine >= 0) channels_[{mine, kind}] = std::move(comm);
    }
}

Communicator& Links::channel(const Handover& what) const {
  return *channels_.at({link_of(shape_, what), what.kind});
}

std::vector<const Communicator*> Links::all() const {
  return transformed(channels_, [](auto& c) -> const Communicator* { return c.second.get(); });
}

Incoming::Incoming(const std::vector<Handover>& all, const Links& links,
                   const Boundaries& boundaries, bool ahead)
    : links_(&links), boundaries_(&boundaries), ahead_(ahead) {
  for (const Handover& what : all) lines_[&links.channel(what)].rest.push_back(what);
  if (ahead)
    for (auto& [from, line] : lines_) post(*from, line);
}

void Incoming::post(Communicator& from, Line& line) {
  if (line.rest.empty()) return;
  const Boundary& b = boundary_of(*boundaries_, line.rest.front());
  line.rest.pop_front();
  line.x = from.empty(b.shape, b.dtype);
  line.work = from.recv(line.x, 1 - from.rank());
}

Tensor Incoming::take(const Handover& what) {
  Communicator& from = links_->channel(what);
  Line& line = lines_.at(&from);
  if (!line.x.defined()) post(from, line);
  line.work.wait();
  Tensor x = std::exchange(line.x, {});
  if (ahead_) post(from, line);
  return x;
}

}  // namespace triax::parallel
