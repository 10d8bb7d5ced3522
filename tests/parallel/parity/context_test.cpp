// Rows of samples over the ranks of cp: a model of attention trains as on one rank, on meshes with
// every other axis, and what would train otherwise is refused.
#include <gtest/gtest.h>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/nn/batch_norm.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/mesh.h"
#include "triax/parallel/parity/parity.h"

namespace triax::parallel::context_test {

using namespace test;

constexpr int64_t width = 16, heads = 4, time = 16, vocabulary = 11;

/// How a block looks at other rows.
enum class Sees { all_before, window, own_rank_alone };

struct Reader : nn::Module {
  Reader(const TensorParallel& tp, Sees what)
      : sees(what),
        heads_here(heads / tp.size()),
        norm(child<LayerNorm>("norm", width, tp)),
        qkv(child<ColumnLinear>("qkv", width, 3 * width, tp,
                                SplitLinearOptions{.std = 0.3, .unit = 3 * width / heads})),
        out(child<RowLinear>("out", width, width, tp, SplitLinearOptions{.std = 0.3})) {}
  Tensor operator()(const Tensor& x, const nn::Batch& batch) const {
    Tensor in = view(qkv(norm(x)), {-1, heads_here, 3, width / heads});
    if (sees == Sees::own_rank_alone) return x + out(attention(in, {.time = batch.input.size(1)}));
    return x + out(nn::attend(*this, batch, in, {.window = sees == Sees::window ? 5 : 0}));
  }
  Sees sees;
  int64_t heads_here;
  LayerNorm& norm;
  ColumnLinear& qkv;
  RowLinear& out;
};

struct Text : nn::Sequence {
  Text(const TensorParallel& tp, Sees sees) {
    add<TokenLayer>("tokens", vocabulary, width, tp, VocabularyOptions{.std = 0.5});
    for (int i = 0; i < 3; ++i) add<Reader>(fmt::format("reader{}", i), tp, sees);
    add<ClassHead>("head", vocabulary, width, tp, VocabularyOptions{.std = 0.3});
  }
};

Task task(Sees sees = Sees::all_before) {
  std::vector<int32_t> ids(size_t(64 * time)), next = ids;
  for (size_t i = 0; i < ids.size(); ++i) {
    ids[i] = int32_t(random::philox(5, i, 0).x % vocabulary);
    next[i] = int32_t(random::philox(5, i + 1, 0).x % vocabulary);
    if (i % 7 == 0) next[i] = -1;  // does not count
  }
  return {.build = [sees](auto& tp) { return std::make_unique<Text>(tp, sees); },
          .samples = std::make_shared<nn::TensorSamples>(from_host(ids, {64, time}, cpu),
                                                         from_host(next, {64, time}, cpu))};
}

TrainOptions options(const MeshShape& mesh, ContextForm form) {
  auto o = tiny_options(mesh);
  o.step.cp_form = form, o.step.micro_batch = 2, o.steps = 2;
  o.step.global_batch = 8;
  return o;
}

TEST(ContextParity, AnyMeshTrainsTheSame) {
  int number = 0;
  for (MeshShape mesh : {MeshShape{.cp = 2},
                         {.cp = 4},
                         {.dp = 2, .cp = 2},
                         {.pp = 2, .cp = 2},
                         {.tp = 2, .cp = 2},
                         {.dp = 2, .pp = 2, .tp = 2, .cp = 2}})
    for (ContextForm form : {ContextForm::ring, ContextForm::heads, ContextForm::gather})
      for (DType dtype : {f32, bf16, f16}) {
        auto o = options(mesh, form);
        if (form == ContextForm::heads && heads % (mesh.cp * mesh.tp) != 0) continue;
        o.step.dtype = dtype, o.step.zero = Zero(++number % 4);
        o.step.sequence_parallel = mesh.tp > 1 && number % 2 == 0;
        o.step.recompute = number % 3 == 0 ? Recompute::block : Recompute::off;
        o.step.schedule = number % 2 == 0 ? "zb-h1" : "1f1b";
        EXPECT_EQ(difference(task(), o), "")
            << str(mesh) << " form " << int(form) << " ZeRO " << number % 4 << " " << name(dtype);
      }
}

TEST(ContextParity, WindowsReachOverRanks) {
  for (ContextForm form : {ContextForm::heads, ContextForm::gather})
    EXPECT_EQ(difference(task(Sees::window), options({.dp = 2, .cp = 2}, form)), "");
}

TEST(ContextParity, BitForBitToo) {
  for (MeshShape mesh : {MeshShape{.cp = 2}, {.dp = 2, .cp = 4}, {.pp = 2, .tp = 2, .cp = 2}})
    for (ContextForm form : {ContextForm::heads, ContextForm::gather})
      for (DType dtype : {f32, bf16}) {
        auto o = options(mesh, form);
        o.step.bitwise = true, o.step.row_parts = 8, o.step.tp_slices = 2, o.step.dtype = dtype;
        EXPECT_EQ(difference(task(), o), "")
            << str(mesh) << " form " << int(form) << " " << name(dtype);
      }
}

TEST(ContextParity, RefusesAttentionToTheRowsOfARankAlone) {
  auto o = options({.cp = 2}, ContextForm::ring);
  EXPECT_EQ(error_of([&] { difference(task(Sees::own_rank_alone), o); }, Exit::config),
            "layer reader0 of [16, 16] f32 on meta: cp=2, and it attends to this rank's rows "
            "alone, 1/2 of each sample\n  Attend by nn::attend(layer, batch, ..), or take --cp 1.");
}

// What recomputation runs in its place is looked at too.
TEST(ContextParity, RefusesSelectiveLayersThatAttendAlone) {
  struct Forgetful : Reader {
    explicit Forgetful(const TensorParallel& tp) : Reader(tp, Sees::all_before) {}
    Tensor selective(const Tensor& x, const nn::Batch& batch) const {
      Tensor in = view(qkv(norm(x)), {-1, heads_here, 3, width / heads});
      return x + out(attention(in, {.time = batch.input.size(1)}));
    }
  };
  struct Selective : nn::Sequence {
    explicit Selective(const TensorParallel& tp) {
      add<TokenLayer>("tokens", vocabulary, width, tp, VocabularyOptions{.std = 0.5});
      add<Forgetful>("reader", tp);
      add<ClassHead>("head", vocabulary, width, tp, VocabularyOptions{.std = 0.3});
    }
  };
  Task with = task();
  with.build = [](auto& tp) { return std::make_unique<Selective>(tp); };
  std::string said =
      error_of([&] { difference(with, options({.cp = 2}, ContextForm::ring)); }, Exit::config);
  EXPECT_NE(said.find("layer reader of [16, 16] f32 on meta: cp=2, and it attends"), said.npos)
      << said;
}

TEST(ContextParity, RefusesBuffers) {
  struct Norm : nn::Sequence {
    explicit Norm(const TensorParallel& tp) {
      add<TokenLayer>("tokens", vocabulary, width, tp);
      add<nn::BatchNorm>("norm", width, 1);
      add<ClassHead>("head", vocabulary, width, tp);
    }
  };
  Task with = task();
  with.build = [](auto& tp) { return std::make_unique<Norm>(tp); };
  EXPECT_EQ(
      error_of([&] { difference(with, options({.cp = 2}, ContextForm::ring)); }, Exit::config),
      "cp=2 with a model that has buffers (norm.mean), such as the statistics of batch norm\n"
      "  They would be of some rows of each sample. Take --cp 1.");
}

}  // namespace triax::parallel::context_test
