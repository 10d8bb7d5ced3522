#pragma once
#include <string>
#include <vector>

#include "triax/parallel/pipeline/schedule.h"

namespace triax::test {

using parallel::Action;
using parallel::Actions;
using parallel::PipelineShape;
using parallel::Placement;

/// `F0.1` is the forward of micro-batch 1 through chunk 0; also B, I, W.
inline std::string text(const Actions& list) {
  std::string all;
  for (const Action& a : list) {
    if (!all.empty()) all += ' ';
    all += "FBIW"[a.kind];
    all += std::to_string(a.chunk) + "." + std::to_string(a.micro);
  }
  return all;
}

struct Case {
  std::string name;
  PipelineShape shape;
  std::string str() const {
    return name + " stages " + std::to_string(shape.stages) + " chunks " +
           std::to_string(shape.chunks) + " micros " + std::to_string(shape.micros);
  }
};

/// How many chunks of a stage it takes, up to `most`.
inline std::vector<int> chunks_of(const std::string& name, int most) {
  auto schedule = parallel::schedule_named(name);
  if (schedule.placement == Placement::v) return {2};
  std::vector<int> all{1};
  bool one = name == "1f1b" || name == "zb-h1" || name == "zb-2p";
  for (int chunks = 2; chunks <= most && !one; ++chunks) all.push_back(chunks);
  return all;
}

/// Every schedule on every shape it takes, with micro-batches fewer than, as many as, a multiple
/// and no multiple of the stages.
inline std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::string& name : parallel::schedule_names())
    for (int stages : {1, 2, 3, 4, 5, 8})
      for (int chunks : chunks_of(name, 4))
        for (int micros = 1; micros <= 24; ++micros)
          all.push_back({name, {stages, chunks, micros, parallel::schedule_named(name).placement}});
  return all;
}

}  // namespace triax::test
