#pragma once
#include <algorithm>
#include <string>

#include "examples/minigpt/feed.h"
#include "examples/minigpt/replica.h"
#include "optim/adamw.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::minigpt {

inline std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

/// A small model for these meshes, in `micros` micro-batches a step.
inline TrainConfig config(const MeshConfig& mesh, int64_t micros) {
  TrainConfig c{.data = "text"};
  c.model = {.layers = 4, .heads = 4, .width = 64, .context = 8, .vocab = 64};
  c.mesh = mesh;
  c.mesh.chunks = std::max<int64_t>(1, mesh.chunks);
  c.micro_batch = 2;
  c.global_batch = 2 * mesh.dp * micros;
  return c;
}

/// One step on every rank of a mesh, with fresh ledgers; `look` sees it before the optimizer's,
/// `rest` after it.
template <class Look, class Rest>
void one_step(const TrainConfig& c, const Look& look, const Rest& rest) {
  Tokenizer tokenizer = Tokenizer::from_text(some_text(), "text");
  TextData text(some_text(), tokenizer, {.context = c.model.context, .name = "text"});
  const MeshConfig& m = c.mesh;
  parallel::run_ranks(int(m.dp * m.pp * m.tp), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
    Replica replica(c, mesh);
    Feed feed(c, text, mesh.dp());
    optim::AdamW adam(replica.data().slots(), {});
    for (auto* group : {&mesh.dp(), &mesh.pp(), &mesh.tp(), &mesh.ends(), &mesh.model()})
      group->reset_ledger();
    memory::counter()->reset_peaks();
    replica.step([&](int64_t micro) { return feed.at(1, micro); }, 1e-2);
    look(mesh, replica);
    adam.step(1e-3);
    replica.data().publish();
    rest(mesh, replica);
  });
}

}  // namespace triax::minigpt
