// Layers that a model is put together from under tensor parallelism: what they hold, and that they
// train as on one rank, with and without sequence parallelism.
#include <fmt/core.h>

#include <map>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/nn/sequence.h"
#include "triax/optim/adamw.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/data/data_parallel.h"
#include "triax/parallel/tensor/dropout.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"
#include "triax/parallel/tensor/norm.h"

namespace triax::parallel::layers_test {

using namespace test;

constexpr int64_t rows = 12, width = 6, vocabulary = 7;

void on_all(const std::function<void(const TensorParallel&)>& body) {
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence : {false, true})
      for (int pieces : {1, 2, 3})
        run_ranks(ranks, [&](Communicator& comm) {
          SCOPED_TRACE(fmt::format("rank {} of {}, sequence {}, pieces {}", comm.rank(), ranks,
                                   sequence, pieces));
          body(TensorParallel(comm, {.sequence = sequence, .pieces = pieces}));
        });
}

TEST(TensorShardTest, NeverCutsAUnit) {
  run_ranks(3, [](Communicator& comm) {
    TensorParallel tp(comm);
    nn::Shard s = tp.shard(1, 24, 4);  // 6 heads of 4
    EXPECT_EQ(s.dim, 1);
    EXPECT_EQ(s.begin, 8 * comm.rank());
    EXPECT_EQ(s.length, 8);
  });
  run_ranks(4, [](Communicator& comm) {
    TensorParallel tp(comm);
    const std::string words =
        "tensor parallel: tp=4 does not divide 6 units of 4 features, such as heads\n"
        "  Valid tp for them: 1, 2, 3, 6.";
    EXPECT_EQ(tp.shard(0, 24).length, 6);  // features of no unit: 4 divides 24
    auto refused = [&](const std::function<void()>& work) { expect_config_error(work, {words}); };
    refused([&] { tp.shard(0, 24, 4); });
    refused([&] { ColumnLinear(8, 24, tp, {.unit = 4}); });
    refused([&] { RowLinear(24, 8, tp, {.unit = 4}); });
    expect_error([&] { tp.shard(0, 30, 4); }, {"30 features in units of 4; expected a multiple"});
    expect_error([&] { tp.shard(0, 24, 0); }, {"24 features in units of 0"});
  });
  auto alone = single_rank();
  EXPECT_EQ(TensorParallel(*alone).shard(0, 24, 4).length, -1) << "one rank holds all";
}

TEST(TensorLayersTest, NormsAreHeldWhole) {
  on_all([](const TensorParallel& tp) {
    LayerNorm layer(width, tp);
    RmsNorm rms(width, tp);
    nn::LayerNorm plain_layer(width);
    nn::RmsNorm plain_rms(width);
    for (nn::Module* m : std::initializer_list<nn::Module*>{&layer, &rms, &plain_layer, &plain_rms})
      m->materialize(cpu, f64, 1);
    Tensor x = filled({5, width}, 1);
    expect_bitwise(layer(x), plain_layer(x));
    expect_bitwise(rms(x), plain_rms(x));
    std::vector<std::string> names;
    for (nn::Module* m : std::initializer_list<nn::Module*>{&layer, &rms})
      for (auto* p : m->parameters()) {
        names.push_back(p->name);
        EXPECT_EQ(p->local(), Shape{width});
        EXPECT_EQ(p->shard.along.contains("tp"), tp.size() > 1);
        EXPECT_EQ(p->shard.is("tp", nn::Along::parts), tp.sequence());
      }
    EXPECT_EQ(names, (std::vector<std::string>{"gamma", "beta", "gamma"}));
  });
}

nn::Batch batch(int step = 0) {
  std::vector<int32_t> input, target;
  for (int i = 0; i < rows; ++i) {
    input.push_back((i * 5 + step) % vocabulary);
    target.push_back(i % 4 == 1 ? -1 : (i * 3 + 1 + step) % vocabulary);
  }
  return {.input = from_host(input, {2, rows / 2}, cpu),
          .target = from_host(target, {2, rows / 2}, cpu)};
}

// The vocabulary is no multiple of any of these numbers of ranks.
TEST(TensorLayersTest, TokensAndClassesAreThoseOfTheWholeTable) {
  on_all([](const TensorParallel& tp) {
    TokenLayer tokens(vocabulary, width, tp);
    ClassHead head(vocabulary, width, tp);
    nn::Parameter whole{.name = "table", .full = {vocabulary, width}, .init = {.std = 0.02}};
    tokens.materialize(cpu, f64, 3), head.materialize(cpu, f64, 3);
    Tensor table = empty(whole.full, f64, cpu);
    whole.key = tokens.parameters()[0]->key;
    whole.fill(table);

    nn::Batch b = batch();
    int64_t n = tp.rows(rows), first = tp.first_row(n);
    expect_near(tokens(b), values(embedding(b.input, table).narrow(0, first, n)), 1e-12);

    Tensor x = filled({rows, width}, 1, f64, 20), mine = clone(x.narrow(0, first, n));
    Tensor logits = linear(x, table), targets = b.target.view({rows});
    double sum = 0;
    for (int64_t i = 0; i < rows; ++i)
      sum += cross_entropy(clone(logits.narrow(0, i, 1)), clone(targets.narrow(0, i, 1))).item();
    EXPECT_NEAR(head(mine, b).item(), sum, 1e-10) << "a sum, not a mean";
    expect_near(head(mine, {.input = b.input}), values(logits), 1e-12, "prediction");
  });
}

// Of one sample, and of three at once, of each of which a rank has a share.
TEST(TensorLayersTest, DropsTheSameElementsOnAnyRanks) {
  on_all([](const TensorParallel& tp) {
    constexpr int64_t samples = 3;
    Dropout drop(0.4, tp);
    nn::Batch batch{.first = 5};
    Tensor all = full({samples * rows, width}, 1, f64, cpu);
    Tensor dropped = nn::Dropout(0.4)(all, nn::serial_of_row(batch, rows));
    int64_t n = tp.rows(rows), first = tp.first_row(n);
    Tensors shares;
    for (int64_t i = 0; i < samples; ++i) shares.push_back(dropped.narrow(0, i * rows + first, n));
    Tensor x = all.narrow(0, 0, n);
    expect_bitwise(drop(x, batch, rows), shares[0].contiguous());

    autograd::SamplesAtOnce scope(samples);
    Tensor mine = all.narrow(0, 0, samples * n);
    expect_bitwise(drop(mine, batch, rows), concat(shares, 0));
    expect_bitwise(drop(mine, {.first = nn::evaluation}, rows), mine, "evaluation");
    expect_bitwise(Dropout(0, tp)(mine, batch, rows), mine);
    if (tp.samples_apart() == 1) return;
    expect_error([&] { drop(mine, batch, rows + 1); }, {"dropout: ", "of each of 3 samples"});
    expect_config_error([&] { tp.scatter_rows(all.narrow(0, 0, tp.size())); },
                        {"ranks do not divide", "rows of several samples"});
  });
}

/// An nn::Linear outside of the split stretch, which sees the rows of its rank.
struct Model : nn::Sequence {
  explicit Model(const TensorParallel& tp) {
    add<TokenLayer>("tokens", vocabulary, width, tp, VocabularyOptions{.std = 1});
    add<LayerNorm>("norm", width, tp);
    add<nn::Linear>("linear", width, width, nn::LinearOptions{.std = 0.5, .shard = tp.whole()});
    add<RmsNorm>("rms", width, tp);
    add<ClassHead>("head", vocabulary, width, tp, VocabularyOptions{.std = 0.5});
  }
};

struct Trained {
  std::vector<double> norms, losses;
  std::map<std::string, std::vector<double>> wholes;  ///< parameters that every rank holds
};

Trained train(int ranks, bool sequence) {
  Trained all;
  std::mutex lock;
  run_ranks(ranks, [&](Communicator& world) {
    Mesh mesh(world, {.tp = ranks});
    Model model(TensorParallel(mesh.tp(), {.sequence = sequence}));
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, {.dtype = f64, .seed = 3});
    optim::AdamW adam(data.slots(), {.eps = 1e-3});
    Trained mine;
    for (int step = 0; step < 4; ++step) {
      data.begin();
      Tensor loss = model(batch(step));
      mine.losses.push_back(loss.item());
      backward(loss);
      data.finish();
      mine.norms.push_back(data.norm().value);
      adam.step(0.05);
      data.publish();
    }
    for (auto* p : model.parameters())
      if (!p->name.ends_with("table")) mine.wholes[p->name] = values(p->value);
    std::lock_guard guard(lock);
    if (all.norms.empty()) all = mine;
    EXPECT_EQ(all.norms, mine.norms);
    EXPECT_EQ(all.wholes, mine.wholes) << "ranks hold different values";
  });
  return all;
}

TEST(TensorLayersTest, ALinearThatEveryRankHoldsTrainsAsOnOneRank) {
  Trained one = train(1, false);
  ASSERT_EQ(one.wholes.size(), 5u);
  EXPECT_LT(one.losses.back(), one.losses.front());
  for (int ranks : {2, 3, 4})
    for (bool sequence : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, sequence {}", ranks, sequence));
      Trained other = train(ranks, sequence);
      for (size_t i = 0; i < one.norms.size(); ++i) {
        EXPECT_NEAR(other.losses[i], one.losses[i], 1e-10) << "step " << i;
        EXPECT_NEAR(other.norms[i], one.norms[i], 1e-10) << "step " << i;
      }
      for (auto& [name, w] : one.wholes)
        for (size_t i = 0; i < w.size(); ++i)
          EXPECT_NEAR(other.wholes.at(name)[i], w[i], 1e-10) << name << " at " << i;
    }
}

}  // namespace triax::parallel::layers_test
