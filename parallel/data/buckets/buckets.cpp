#include "triax/parallel/data/buckets/buckets.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace triax::parallel {
namespace {

constexpr int64_t align = 16;  // one AVX-512 register of f32, one cache line

int64_t round_up(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

/// Returns how many of the chunks use each parameter, in their layers.
std::map<const nn::Parameter*, int> passes_of(const std::vector<nn::Layers>& chunks) {
  std::map<const nn::Parameter*, int> passes;
  for (auto& chunk : chunks) {
    std::set<const nn::Parameter*> used;
    for (auto& layer : chunk)
      for (auto* m : layer.uses)
        for (auto* p : m->parameters()) used.insert(p);
    for (auto* p : used) ++passes[p];
  }
  return passes;
}

/// Splits each group into trained and frozen parameters, and each of these by who sums them; the
/// frozen groups come last.
std::vector<ParameterGroup> frozen_last(const std::vector<ParameterGroup>& groups,
                                        const SummedOver& over) {
  std::vector<ParameterGroup> parted;
  for (bool frozen : {false, true})
    for (ParameterGroup g : groups) {
      std::erase_if(g.parameters, [&](auto* p) { return p->frozen != frozen; });
      while (!g.parameters.empty()) {
        ParameterGroup others = g;
        auto with_first = [&, first = over(*g.parameters[0])](auto* p) {
          return over(*p) == first;
        };
        std::erase_if(others.parameters, with_first);
        std::erase_if(g.parameters, std::not_fn(with_first));
        parted.push_back(std::exchange(g, std::move(others)));
      }
    }
  return parted;
}

}  // namespace

std::vector<ParameterGroup> group(nn::Module& model, const std::vector<nn::Layers>& chunks,
                                  Grouping grouping, const SummedOver& over) {
  if (chunks.empty()) return frozen_last({{.parameters = model.parameters()}}, over);
  std::vector<ParameterGroup> groups;
  std::set<const nn::Parameter*> placed, shared;
  auto passes = passes_of(chunks);
  auto place = [&](const nn::Layers& layers) {
    ParameterGroup g{.whole = grouping == Grouping::by_layer};
    for (auto& layer : layers)
      for (auto* m : layer.uses)
        for (auto* p : m->parameters()) {
          if (!placed.insert(p).second) continue;
          if (p->tied || passes[p] > 1) shared.insert(p);
          else g.parameters.push_back(p);
        }
    groups.push_back(std::move(g));
  };
  for (auto chunk = chunks.rbegin(); chunk != chunks.rend(); ++chunk) {
    if (grouping == Grouping::by_chunk) place(*chunk);
    else
      for (auto layer = chunk->rbegin(); layer != chunk->rend(); ++layer) place({*layer});
  }
  // In order of declaration, which is alike at both ends of a pipeline.
  for (auto* p : model.parameters())
    if (shared.contains(p)) groups.push_back({{p}, passes[p], true});
  return frozen_last(groups, over);
}

std::vector<BucketLayout> lay_out(const std::vector<ParameterGroup>& groups,
                                  const BucketSizes& sizes, int ranks) {
  std::vector<BucketLayout> buckets;
  for (auto& g : groups) {
    bool open = false;
    for (auto it = g.parameters.rbegin(); it != g.parameters.rend(); ++it) {
      int64_t n = (*it)->local().numel(), padded = round_up(n, align);
      int64_t limit = buckets.size() <= 1 ? sizes.first : sizes.other;
      bool full =
          open && !g.whole && buckets.back().length > 0 && buckets.back().length + padded > limit;
      if (!open || full) buckets.push_back({.passes = g.passes});
      open = true;
      auto& b = buckets.back();
      b.pieces.push_back({*it, b.length, n});
      b.length += padded;
    }
  }
  for (auto& b : buckets) b.length = round_up(b.length, align * ranks);
  return buckets;
}

void Bucket::begin(int64_t passes) {
  due = passes;
  complete = reductions = 0;
  std::ranges::fill(fired, 0);
  behind_ = fired.size();
}

void Bucket::fire(size_t piece) {
  if (fired[piece]++ > complete || --behind_ > 0) return;
  ++complete;
  behind_ = size_t(std::ranges::count(fired, complete));
}

Range Bucket::mine(const FlatPiece& piece) const {
  int64_t end = my_weight.numel();
  return {std::clamp<int64_t>(piece.begin - my_first, 0, end),
          std::clamp<int64_t>(piece.begin + piece.length - my_first, 0, end)};
}

std::vector<Range> Bucket::mine(const std::function<bool(const nn::Parameter&)>& such) const {
  std::vector<Range> ranges;
  bool joins = false;  // the piece before counts too
  for (auto& piece : layout.pieces) {
    Range r = mine(piece);
    if (r.begin == r.end) continue;
    bool counts = such(*piece.parameter);
    if (counts && joins) ranges.back().end = r.end;
    else if (counts) ranges.push_back(r);
    joins = counts;
  }
  return ranges;
}

}  // namespace triax::parallel
