#include "triax/parallel/train/model/model_checks.h"

#include <map>

#include "triax/autograd/backward.h"
#include "triax/core/check.h"
#include "triax/core/memory.h"

namespace triax::parallel {

Parameters used_by(const nn::Layer& layer) {
  Parameters used;
  for (auto* module : layer.uses)
    for (auto* p : module->parameters()) used.insert(p);
  return used;
}

void check_buffers(nn::Sequence& model) {
  std::map<nn::Buffer*, const nn::Layer*> used;
  for (auto& layer : model.layers())
    for (auto* module : layer.uses)
      for (auto* b : module->buffers()) {
        const nn::Layer* first = used.try_emplace(b, &layer).first->second;
        check_input(first == &layer, Exit::config,
                    "layer {}: it uses {}, as layer {} does; expected one layer for a module with "
                    "buffers",
                    layer.name, b->name, first->name);
      }
  for (auto* b : model.buffers())
    check_input(used.contains(b), Exit::config,
                "buffer {}: no layer of the model uses it; expected its module in an add()",
                b->name);
}

void check_shards(nn::Module& model, const TensorParallel& tp) {
  if (tp.size() == 1) return;
  for (auto* p : model.parameters()) {
    check_input(p->shard.length < 0 || p->shard.along.contains("tp"), Exit::config,
                "parameter {}: a slice that does not say along which axis; expected tp.shard()",
                p->name);
    check_input(p->shard.along.contains("tp"), Exit::config,
                "parameter {}: all {} tensor-parallel ranks hold the whole of it, and it does not "
                "say so; its gradient would be wrong\n"
                "  Make its layer with .shard = tp.whole(), or take the layer of parallel/tensor.",
                p->name, tp.size());
  }
}

void check_uses(const nn::Layer& layer, const std::vector<nn::Parameter*>& now) {
  Parameters used = used_by(layer);
  for (auto* p : now) {
    if (!p->frozen) grad(p->value) = {};
    check_input(used.contains(p), Exit::config,
                "it uses parameter {}; expected its module in the layer's `uses`, the list in "
                "add(\"{}\", {{...}}, ...)",
                p->name, layer.name);
  }
}

void check_gradients(nn::Sequence& model, const Parameters& reached) {
  Parameters used;
  for (auto& layer : model.layers()) used.merge(used_by(layer));
  for (auto* p : model.parameters()) {
    check_input(used.contains(p), Exit::config,
                "parameter {}: no layer of the model uses it; expected its module in an add()",
                p->name);
    check_input(
        reached.contains(p), Exit::config,
        "parameter {}: no {} reaches it; expected its layer to use it in what it "
        "returns\n  Each layer ran once on zeros. One that chooses its modules by values has "
        "to use all of them then.",
        p->name, p->frozen ? "op" : "gradient");
  }
}

void check_keeps_nothing(const nn::Layer& layer, const Tensor& x, const nn::Batch& batch) {
  memory::OwnCounter made;
  {
    nn::Batch other = nn::mapped(batch, empty_like);
    auto dx = std::make_shared<Tensor>();
    layer.run(x.defined() ? graph_input(empty_like(x), dx) : x, other);
  }
  check_input(
      memory::counter()->live() == 0, Exit::config,
      "it keeps {} bytes that this call made; expected none: with pipeline parallelism "
      "others would see those of another micro-batch\n"
      "  Return what a later layer needs as further columns of x, make a constant once, and "
      "declare what lasts as buffer() or parameter().",
      memory::counter()->live());
}

}  // namespace triax::parallel
