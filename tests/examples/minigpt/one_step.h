#pragma once
#include "tests/examples/minigpt/minigpt_run.h"

namespace triax::minigpt {

/// A small model for this layout, in `micros` micro-batches a step.
inline Job small_job(const Layout& layout, int64_t micros) {
  Job c;
  c.model = {.layers = 4, .heads = 4, .width = 64, .context = 8, .vocab = 64};
  c.set(layout);
  c.step().micro_batch = 2;
  c.step().global_batch = 2 * layout.dp * micros;
  return c;
}

/// One step on every rank of a mesh, with fresh ledgers; `look` sees it before the optimizer's,
/// `rest` after it.
template <class Look, class Rest> void one_step(const Job& c, const Look& look, const Rest& rest) {
  parallel::Task task = task_of(c);
  on_mesh(c.step().mesh, [&](parallel::Mesh& mesh) {
    parallel::Step step(mesh, task.build, c.step(), facts_of(task, c.step()),
                        {.gradients = [&](const parallel::Step& s) { look(mesh, s.replica()); }});
    auto feed = feed_of(task, c.step(), mesh);
    for (auto* group : {&mesh.dp(), &mesh.pp(), &mesh.tp(), &mesh.ends()}) group->reset_ledger();
    memory::counter()->reset_peaks();
    step.take({.batches = [&](int64_t micro) { return feed.at(1, micro); },
               .weight = feed.weight(1),
               .lr = 1e-3});
    rest(mesh, step.replica());
  });
}

}  // namespace triax::minigpt
