#include "examples/schedule/measure.h"

#include <fmt/format.h>

#include "autograd/backward.h"
#include "autograd/record.h"
#include "nn/linear.h"
#include "optim/adamw.h"
#include "parallel/comm/threads/thread_comm.h"
#include "parallel/data/data_parallel.h"
#include "parallel/tensor/linear.h"

namespace triax::schedule {
namespace {

using json = nlohmann::ordered_json;
constexpr int64_t width = 64;  // of a layer: its elements divide among 8 ranks without padding
constexpr int layers = 4, micros = 2;

struct Stack : nn::Module {
  Stack() {
    for (int i = 0; i < layers; ++i) {
      auto& linear = child<nn::Linear>(fmt::format("layer{}", i), width, width,
                                       nn::LinearOptions{.bias = false});
      list.push_back({"layer", {&linear}, [&linear](const Tensor& x, const nn::Batch&) {
                        return linear(x.defined() ? x : full({1, width}, 1, f32, cpu));
                      }});
    }
  }
  nn::Layers list;
};

void backward_of(const Tensor& y) { backward(y, full(y.shape(), 1, f32, cpu)); }

json train(parallel::Communicator& world, parallel::Zero zero) {
  parallel::Mesh mesh(world, {.dp = world.size()});
  Stack model;
  std::vector<nn::Layers> chunks{model.list};
  parallel::DataParallel data(model, chunks, mesh, {.zero = zero});
  optim::AdamW adam(data.slots(), {});
  mesh.dp().reset_ledger();
  data.begin(micros);
  for (int m = 0; m < micros; ++m) {
    Tensor x;
    for (auto& layer : chunks[0]) x = layer.run(x, {});
    backward_of(x);
  }
  data.finish();
  adam.step(1e-3);
  data.publish();
  auto& memory = *memory::counter();
  return {{"weights", memory.live(memory::parameters)},
          {"gradients", memory.live(memory::gradients)},
          {"optimizer", memory.live(memory::optimizer)},
          {"sent", mesh.dp().ledger().total().bytes}};
}

/// Names of the collectives that `f` calls.
template <class F> json collectives(parallel::Communicator& comm, F&& f) {
  using parallel::Call;
  json names = json::array();
  comm.reset_ledger();
  f();
  for (int kind = 0; kind < Call::kinds; ++kind)
    if (comm.ledger()[Call::Kind(kind)].calls) names.push_back(name(Call::Kind(kind)));
  return names;
}

/// `x`: what this rank has of the input.
template <class Layer> json collectives_of(Layer& layer, parallel::Communicator& comm, Tensor x) {
  layer.materialize(cpu, f32, 1);
  require_grad(x);
  Tensor y;
  json forward = collectives(comm, [&] { y = layer(x); });
  return {{"forward", forward}, {"backward", collectives(comm, [&] { backward_of(y); })}};
}

}  // namespace

json measure_zero(int ranks) {
  json stages = json::array();
  for (int zero = 0; zero < 4; ++zero) {
    json held;
    parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
      json mine = train(world, parallel::Zero(zero));
      if (world.rank() == 0) held = std::move(mine);  // all ranks hold as much
    });
    stages.push_back(std::move(held));
  }
  return {{"ranks", ranks},
          {"micros", micros},
          {"parameters", layers * width * width},
          {"stages", stages}};
}

json measure_tensor(int ranks) {
  json found{{"ranks", ranks}};
  parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
    for (bool sequence : {false, true}) {
      parallel::TensorParallel tp(world, {.sequence = sequence});
      constexpr int64_t rows = 8, features = 4;
      Tensor outside = full({tp.rows(rows), features}, 1, f32, cpu);
      Tensor inside = full({rows, features / tp.size()}, 1, f32, cpu);
      parallel::ColumnLinear column(features, features, tp);
      parallel::RowLinear row(features, features, tp);
      json both{{"column", collectives_of(column, world, outside)},
                {"row", collectives_of(row, world, inside)}};
      if (world.rank() == 0) found[sequence ? "sequence" : "tensor"] = std::move(both);
    }
  });
  return found;
}

}  // namespace triax::schedule
