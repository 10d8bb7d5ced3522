// Measures, on ranks that are threads, the figures that scripts/draw.py draws. Prints JSON:
//   figures mesh 2x2x2    coordinates of the ranks of a mesh
//   figures zero 4        bytes that a rank holds and sends with ZeRO 0 to 3
//   figures tensor 2      collectives that tensor-parallel layers call
//   figures vocabulary 2  those of an embedding and a head that are split by vocabulary
#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/autograd/record.h"
#include "triax/core/check.h"
#include "triax/nn/linear.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/program/verbs.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"
#include "triax/parallel/train/step/step.h"

namespace {

using namespace triax;
using namespace triax::parallel;
using json = nlohmann::ordered_json;

/// `ranks`: the [dp, pp, tp] of each.
json mesh_figures(const MeshShape& s) {
  check_input(s.cp * s.ep == 1, Exit::config, "mesh `{}x{}x{}x{}`; expected dp x pp x tp", s.dp,
              s.pp, s.cp, s.tp);
  json ranks = json::array();
  for (int rank = 0; rank < s.size(); ++rank) {
    ranks.push_back({s.place(rank, {"dp"}), s.place(rank, {"pp"}), s.place(rank, {"tp"})});
  }
  return {{"dp", s.dp}, {"pp", s.pp}, {"tp", s.tp}, {"ranks", ranks}};
}

constexpr int64_t width = 64;  // of a layer: its elements divide among 8 ranks without padding
constexpr int depth = 4, micros = 2;

struct Stack : nn::Sequence {
  Stack() {
    for (int i = 0; i < depth; ++i)
      add<nn::Linear>(fmt::format("layer{}", i), width, width, nn::LinearOptions{.bias = false});
    add("sum", {}, [](const Tensor& x, const nn::Batch&) { return sum(x); });
  }
};

/// After a step: the bytes that a rank holds of each kind, and those that it sent over dp.
json one_step(Communicator& world, Zero zero) {
  Mesh mesh(world, {.dp = world.size()});
  StepOptions o;
  o.mesh = mesh.shape(), o.zero = zero, o.chunks = 1;
  o.micro_batch = 1, o.global_batch = micros * world.size();
  Build build = [](auto&) { return std::make_unique<Stack>(); };
  nn::Batch batch{full({1, width}, 1, f32, cpu), zeros({1}, f32, cpu)};
  Step step(mesh, build, o, probe(build, batch, probe_options(o)));
  mesh.dp().reset_ledger();
  step.take({.batches = [&](int64_t) { return batch; }});
  auto& memory = *memory::counter();
  return {{"weights", memory.live(memory::parameters)},
          {"gradients", memory.live(memory::gradients)},
          {"optimizer", memory.live(memory::optimizer)},
          {"sent", mesh.dp().ledger().total().bytes}};
}

json zero_figures(int ranks) {
  json stages = json::array();
  for (int zero = 0; zero < 4; ++zero) {
    json held;
    run_ranks(ranks, [&](Communicator& world) {
      json mine = one_step(world, Zero(zero));
      if (world.rank() == 0) held = std::move(mine);  // all ranks hold as much
    });
    stages.push_back(std::move(held));
  }
  return {{"ranks", ranks},
          {"micros", micros},
          {"parameters", depth * width * width},
          {"stages", stages}};
}

/// Names of the collectives that `f` calls.
template <class F> json collectives(Communicator& comm, F&& f) {
  json names = json::array();
  comm.reset_ledger();
  f();
  for (int kind = 0; kind < Call::kinds; ++kind)
    if (comm.ledger()[Call::Kind(kind)].calls) names.push_back(name(Call::Kind(kind)));
  return names;
}

/// Of `f`, which returns an output of leaves that need gradients, and of its backward.
template <class F> json both_ways(Communicator& comm, F&& f) {
  Tensor y;
  json forward = collectives(comm, [&] { y = f(); });
  auto go_back = [&] { backward(y, full(y.shape(), 1, f32, cpu)); };
  return {{"forward", forward}, {"backward", collectives(comm, go_back)}};
}

Tensor leaf(const Shape& shape) {
  Tensor x = full(shape, 1, f32, cpu);
  require_grad(x);
  return x;
}

constexpr int64_t rows = 8, features = 4, vocabulary = 24;

/// ColumnLinear and RowLinear.
json layer_figures(Communicator& world, const TensorParallel& tp) {
  ColumnLinear column(features, features, tp);
  RowLinear row(features, features, tp);
  column.materialize(cpu, f32, 1), row.materialize(cpu, f32, 1);
  Tensor outside = leaf({tp.rows(rows), features}), inside = leaf({rows, features / tp.size()});
  return {{"column", both_ways(world, [&] { return column(outside); })},
          {"row", both_ways(world, [&] { return row(inside); })}};
}

json vocabulary_figures(Communicator& world, const TensorParallel& tp) {
  VocabularyEmbedding table(vocabulary, features, tp);
  table.materialize(cpu, f32, 1);
  Tensor ids = zeros({rows}, i32, cpu), x = leaf({tp.rows(rows), features});
  Tensor logits = table.logits(x).detach();
  require_grad(logits);
  return {{"embedding", both_ways(world, [&] { return table(ids); })},
          {"logits", both_ways(world, [&] { return table.logits(x); })},
          {"loss", both_ways(world, [&] { return table.cross_entropy(logits, ids); })}};
}

/// What `f` finds with tensor and with sequence parallelism.
template <class F> json tensor_figures(int ranks, F&& f) {
  json found{{"ranks", ranks}};
  run_ranks(ranks, [&](Communicator& world) {
    for (bool sequence : {false, true}) {
      json both = f(world, TensorParallel(world, {.sequence = sequence}));
      if (world.rank() == 0) found[sequence ? "sequence" : "tensor"] = std::move(both);
    }
  });
  return found;
}

int ranks_of(const std::string& text) {
  int ranks = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), ranks);
  check_input(error == std::errc() && end == text.data() + text.size() && ranks >= 1 && ranks <= 8,
              Exit::usage, "figures: `{}` ranks; expected 1 to 8", printable(text));
  return ranks;
}

int run(int argc, char** argv) {
  std::string what = argc == 3 ? argv[1] : "";
  json figures;
  if (what == "mesh") figures = mesh_figures(mesh_of(argv[2]));
  else if (what == "zero") figures = zero_figures(ranks_of(argv[2]));
  else if (what == "tensor") figures = tensor_figures(ranks_of(argv[2]), layer_figures);
  else if (what == "vocabulary") figures = tensor_figures(ranks_of(argv[2]), vocabulary_figures);
  else
    fail(Exit::usage,
         "figures: expected mesh DPxPPxTP, zero RANKS, tensor RANKS or vocabulary RANKS");
  fmt::print("{}\n", json{{what, figures}}.dump());
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return run_main(argc, argv, run); }
