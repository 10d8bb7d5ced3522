// What ranks share of a layer adds up to the plain layer, with its gradients: in f64, on 1 to 4
// ranks, with and without sequence parallelism. correctness 21-25.
#include "triax/parallel/tensor/tensor_parallel.h"

#include <fmt/core.h>

#include <map>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/core/backend.h"
#include "triax/nn/norm.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/tensor/embedding.h"
#include "triax/parallel/tensor/linear.h"

namespace triax::parallel::tensor_parallel_test {

using namespace test;

constexpr int64_t rows = 12, width = 12;  // 1 to 4 ranks divide them

/// What ranks hold of a tensor: all of them the same, or each something of its own.
enum class Held { alike, own };

struct Ends {
  Held in, out;
};

/// Gradients of `fn` over all ranks: of the loss to which each rank adds <weights, y>, or, where y
/// is alike on all ranks, of <weights, y>.
void check_over_ranks(Communicator& tp, const std::function<Tensor(const Tensor&)>& fn, Tensor x,
                      Ends ends) {
  auto key = [&](Held held) { return uint64_t(held == Held::alike ? 9 : 10 + tp.rank()); };
  copy_(x, filled(x.shape(), key(ends.in)));
  require_grad(x);
  Tensor y = fn(x), weights = filled(y.shape(), 100 + key(ends.out), f64, 1);
  backward(y, weights);
  NoGrad guard;
  auto loss = [&] {
    Tensor total = sum(fn(x) * weights).view({1});
    if (ends.out == Held::own) tp.all_reduce(total).wait();
    return total.item();
  };
  auto slopes = values(grad(x));
  for (int turn = 0; turn < (ends.in == Held::own ? tp.size() : 1); ++turn)
    for (int64_t i = 0; i < x.numel(); ++i) {
      bool mine = ends.in == Held::alike || turn == tp.rank();
      Tensor element = x.detach().view({-1}).narrow(0, i, 1);
      double old = element.item(), step = 1e-3;  // the loss is linear in x
      if (mine) fill_(element, old + step);
      double above = loss();
      if (mine) fill_(element, old - step);
      double slope = (above - loss()) / (2 * step);
      if (mine) fill_(element, old);
      if (!mine) continue;
      ASSERT_NEAR(slopes[size_t(i)], slope, 1e-9) << "element " << i;
    }
}

/// The test for every number of ranks, without and with sequence parallelism.
void on_all(const std::function<void(Communicator&, const TensorParallel&)>& body) {
  for (int ranks : {1, 2, 3, 4})
    for (bool sequence : {false, true}) {
      run_ranks(ranks, [&](Communicator& tp) {
        SCOPED_TRACE(
            fmt::format("rank {} of {}{}", tp.rank(), ranks, sequence ? ", sequence" : ""));
        body(tp, TensorParallel(tp, {.sequence = sequence}));
      });
      EXPECT_EQ(autograd::live_nodes(), 0);
    }
}

TEST(TensorParallelTest, WaysInAndOutAreEachOthersBackward) {
  on_all([](Communicator& comm, const TensorParallel& tp) {
    Held outside = tp.sequence() ? Held::own : Held::alike;
    Tensor all = empty({rows, 2}, f64, cpu), mine = empty({tp.rows(rows), 2}, f64, cpu);
    auto check = [&](auto fn, const Tensor& x, Ends ends) {
      check_over_ranks(comm, fn, clone(x), ends);
    };
    check([&](const Tensor& x) { return tp.enter(x); }, mine, {outside, Held::own});
    check([&](const Tensor& x) { return tp.leave(x); }, all, {Held::own, outside});
    check([&](const Tensor& x) { return tp.scatter_rows(x); }, all, {Held::alike, outside});
    check([&](const Tensor& x) { return tp.gather_rows(x); }, mine, {outside, Held::alike});
  });
}

TEST(TensorParallelTest, ValuesOnTheWays) {
  on_all([](Communicator&, const TensorParallel& tp) {
    Tensor all = filled({rows, 3}, 1);
    int64_t n = tp.rows(rows), first = tp.first_row(n);
    Tensor mine = clone(all.narrow(0, first, n));
    expect_bitwise(tp.scatter_rows(all), mine);
    expect_bitwise(tp.gather_rows(mine), all);
    expect_bitwise(tp.enter(mine), all);

    Tensor expected = zeros({rows, 3}, f64, cpu);
    for (int r = 0; r < tp.size(); ++r) expected = expected + filled({rows, 3}, 50 + uint64_t(r));
    Tensor part = filled({rows, 3}, 50 + uint64_t(tp.rank())), kept = clone(part);
    expect_bitwise(tp.leave(part), expected.narrow(0, first, n));
    expect_bitwise(part, kept, "what is still held must not become the sum");

    Tensor wide = filled({4, 2 * tp.size()}, 3);
    expect_bitwise(join_columns(tp, wide.narrow(1, 2 * tp.rank(), 2).contiguous()), wide);
  });
}

// Each of three samples at once has rows on every rank; backward, which runs later, knows it too.
TEST(TensorParallelTest, SamplesAtOnceHaveRowsOnEveryRank) {
  on_all([](Communicator&, const TensorParallel& tp) {
    constexpr int64_t samples = 3;
    Tensor all = filled({samples * rows, 3}, 1);
    int64_t n = tp.rows(rows), first = tp.first_row(n);
    auto mine_of = [&](const Tensor& x) {
      Tensors parts;
      for (int64_t i = 0; i < samples; ++i)
        parts.push_back(x.detach().narrow(0, i * rows + first, n));
      return concat(parts, 0);
    };
    Tensor mine = mine_of(all), scattered, gathered, entered, left;
    Tensor from = clone(all), to = clone(mine), way_in = clone(mine), way_out = clone(all);
    for (Tensor* x : {&from, &to, &way_in, &way_out}) require_grad(*x);
    {
      autograd::SamplesAtOnce scope(samples);
      EXPECT_EQ(tp.samples_apart(), tp.sequence() ? samples : 1);
      expect_bitwise(scattered = tp.scatter_rows(from), mine);
      expect_bitwise(gathered = tp.gather_rows(to), all);
      expect_bitwise(entered = tp.enter(way_in), all);
      expect_bitwise(left = tp.leave(way_out), mine_of(all * double(tp.size())));
    }
    backward(scattered, clone(mine));
    expect_bitwise(grad(from), all);
    backward(gathered, clone(all));
    expect_bitwise(grad(to), mine);
    backward(entered, clone(all));
    expect_bitwise(grad(way_in), mine_of(all * double(tp.size())));
    backward(left, clone(mine));
    expect_bitwise(grad(way_out), all);
  });
}

// What a product keeps for its backward is no more than what came in: not the gathered rows.
TEST(TensorParallelTest, ProductsKeepRowsOfTheirRank) {
  on_all([](Communicator&, const TensorParallel& tp) {
    ColumnLinear layer(width, 24, tp);
    layer.materialize(cpu, f64, 1);
    Tensor x = filled({tp.rows(rows), width}, 1);
    require_grad(x);
    backward(sum(layer(x)));  // now all gradients are there
    auto live = [] { return memory::counter()->live(memory::activations); };
    int64_t before = live();
    Tensor y = layer(x);
    EXPECT_EQ(live() - before, int64_t(y.bytes()));
    y = layer.gelu(x);
    EXPECT_EQ(live() - before, 2 * int64_t(y.bytes())) << "its argument and its value";
    backward(sum(y));
    y = {};
    EXPECT_EQ(live(), before);
  });
}

// Statistics of the slices of a row become those of the row: also of a slice that is all padding.
TEST(TensorParallelTest, CombinesStatisticsOfSlices) {
  on_all([](Communicator&, const TensorParallel& tp) {
    constexpr int64_t vocabulary = 5;
    Tensor logits = filled({rows, 8}, 4, f64, 20);  // 5 classes and padding for up to 4 slices
    Tensor targets = from_host(std::vector<int64_t>(rows, 3), {rows}, cpu);
    auto stats_of = [&](const Tensor& slice, int64_t first) {
      Tensor stats = empty({rows, 4}, f64, cpu);
      backend(cpu).cross_entropy_stats({slice, targets, first, vocabulary, -1, 0}, stats);
      return stats;
    };
    nn::Shard shard = tp.vocabulary(vocabulary);
    int64_t held = tp.size() == 1 ? vocabulary : shard.length + shard.padding;
    Tensor stats = stats_of(logits.narrow(1, tp.rank() * held, held).contiguous(), shard.begin);
    stats = tp.combine(stats.view({1, stats.size(0), 4}));
    expect_near(stats, values(stats_of(logits.narrow(1, 0, vocabulary).contiguous(), 0)), 1e-12);
  });
}

/// A model with everything in it, outside and inside the split stretches.
struct Net : nn::Module {
  Net(int64_t vocabulary, const TensorParallel& along)
      : tp(along), table(child<VocabularyEmbedding>("table", vocabulary, width, along)) {}
  TensorParallel tp;
  VocabularyEmbedding& table;
  nn::LayerNorm& norm = child<nn::LayerNorm>("norm", width, nn::NormOptions{.shard = tp.whole()});
  ColumnLinear& up = child<ColumnLinear>("up", width, 24, tp);
  RowLinear& down = child<RowLinear>("down", 24, width, tp);
  ColumnLinear& up_plain =
      child<ColumnLinear>("up_plain", width, 12, tp, SplitLinearOptions{.bias = false});
  RowLinear& down_plain =
      child<RowLinear>("down_plain", 12, width, tp, SplitLinearOptions{.bias = false});

  Tensor logits(const Tensor& ids) const {
    Tensor x = table(ids);
    Tensor h = down.onto(x, up.gelu(norm(x)));
    Tensor g = down_plain.onto(h, up_plain(h));
    return table.logits(g + down(up.gelu(g)));
  }
};

using Wholes = std::map<std::string, Tensor>;

/// Values of the whole parameters: biases too, and large enough to matter.
Wholes whole_values(nn::Module& m) {
  Wholes all;
  for (auto* p : m.parameters()) {
    all[p->name] = filled(p->full, 1000 + all.size());
    require_grad(all[p->name]);
  }
  return all;
}

/// This rank's slice of a whole.
Tensor slice_of(const Tensor& whole, const nn::Shard& s) {
  Tensor x = whole.detach();
  return s.length < 0 ? x : x.narrow(s.dim, s.begin, s.length).contiguous();
}

/// Every parameter its slice; padding holds what must not take part in anything.
void set(nn::Module& m, const Wholes& wholes) {
  for (auto* p : m.parameters()) {
    Tensor slice = slice_of(wholes.at(p->name), p->shard), value = p->value.detach();
    if (p->shard.padding > 0) fill_(value, 1e3);
    copy_(p->shard.padding > 0 ? value.narrow(0, 0, slice.size(0)) : value, slice);
  }
}

/// The same with plain ops on the whole parameters.
Tensor plain_logits(const Wholes& w, const Tensor& ids) {
  const Tensor& table = w.at("table.table");
  Tensor x = embedding(ids, table);
  Tensor h = layer_norm(x, w.at("norm.gamma"), w.at("norm.beta"));
  h = linear_gelu(h, w.at("up.weight"), w.at("up.bias"));
  h = x + linear(h, w.at("down.weight"), w.at("down.bias"));
  h = h + linear(linear(h, w.at("up_plain.weight")), w.at("down_plain.weight"));
  Tensor g = linear_gelu(h, w.at("up.weight"), w.at("up.bias"));
  return linear(h + linear(g, w.at("down.weight"), w.at("down.bias")), table);
}

struct Loss {
  int64_t vocabulary;
  CrossEntropyOptions options;
};

/// One model, split and plain: logits, loss and every gradient.
void compare(Communicator& comm, const TensorParallel& tp, const Loss& loss) {
  Net net(loss.vocabulary, tp);
  net.materialize(cpu, f64, 1);
  Wholes wholes = whole_values(net);
  set(net, wholes);
  std::vector<int64_t> picked, next;
  for (int64_t i = 0; i < rows; ++i) {
    picked.push_back(i * 5 % loss.vocabulary);
    next.push_back(i % 4 == 1 ? loss.options.ignore : (i * 3 + 1) % loss.vocabulary);
  }
  Tensor ids = from_host(picked, {rows}, cpu), targets = from_host(next, {rows}, cpu);

  Tensor expected_logits = plain_logits(wholes, ids), logits = net.logits(ids);
  expect_near(net.table.whole(logits), values(expected_logits), 1e-12, "logits");
  Tensor expected = cross_entropy(expected_logits, targets, loss.options);
  Tensor got = net.table.cross_entropy(std::move(logits), targets, loss.options);
  expect_near(got, values(expected), 1e-12, "loss");

  backward(expected);
  backward(got);
  for (auto* p : net.parameters()) {
    Tensor g = grad(p->value);
    if (p->shard.is("tp", nn::Along::parts)) comm.all_reduce(g).wait();
    int64_t padding = p->shard.padding, held = p->value.size(0) - padding;
    expect_near(g.narrow(0, 0, held), values(slice_of(grad(wholes.at(p->name)), p->shard)), 1e-11,
                p->name);
    expect_near(g.narrow(0, held, padding), std::vector<double>(size_t(padding * width), 0), 0,
                p->name + ", padding");
  }
}

TEST(TensorParallelTest, LayersAddUpToThePlainOnes) {
  on_all([](Communicator& comm, const TensorParallel& tp) {
    for (int64_t vocabulary : {12, 5, 13})  // 5 on 4 ranks: the last slice is all padding
      for (double smoothing : {0., 0.1})
        for (int64_t ignore : {-1, -100}) {
          SCOPED_TRACE(fmt::format("vocabulary {}, smoothing {}", vocabulary, smoothing));
          auto reduction = smoothing > 0 ? CrossEntropyOptions::Reduction::mean
                                         : CrossEntropyOptions::Reduction::sum;
          compare(comm, tp,
                  {vocabulary, {.reduction = reduction, .ignore = ignore, .smoothing = smoothing}});
        }
  });
}

// Nothing counts: no loss, no gradient, no NaN.
TEST(TensorParallelTest, AllTargetsIgnored) {
  on_all([](Communicator&, const TensorParallel& tp) {
    VocabularyEmbedding table(5, width, tp);
    table.materialize(cpu, f64, 1);
    Tensor x = filled({tp.rows(rows), width}, 1);
    require_grad(x);
    Tensor targets = from_host(std::vector<int64_t>(rows, -1), {rows}, cpu);
    Tensor loss = table.cross_entropy(table.logits(x), targets);
    EXPECT_EQ(loss.item(), 0);
    backward(loss);
    for (double g : values(grad(x))) EXPECT_EQ(g, 0);
  });
}

// The initial weights of all slices together are those of one rank, and padding is zero.
TEST(TensorParallelTest, InitialWeightsAreSlicesOfTheWhole) {
  Wholes wholes;
  run_ranks(1, [&](Communicator& alone) {
    Net net(13, TensorParallel(alone));
    net.materialize(cpu, f32, 7);
    for (auto* p : net.parameters()) wholes[p->name] = p->value.detach();
  });
  EXPECT_NE(values(wholes.at("up.weight")), values(wholes.at("down.weight")));
  on_all([&](Communicator&, const TensorParallel& tp) {
    Net net(13, tp);
    net.materialize(cpu, f32, 7);
    for (auto* p : net.parameters()) {
      Tensor value = p->value.detach();
      int64_t padding = p->shard.padding, held = value.size(0) - padding;
      expect_bitwise(value.narrow(0, 0, held), slice_of(wholes.at(p->name), p->shard), p->name);
      for (double v : values(value.narrow(0, held, padding))) EXPECT_EQ(v, 0) << p->name;
    }
  });
}

// Slices of a vocabulary lie side by side, all of one stored length, and cover it.
TEST(TensorParallelTest, SlicesCoverAnyVocabulary) {
  for (int64_t vocabulary : {1, 3, 5, 12, 13})
    on_all([&](Communicator& comm, const TensorParallel& tp) {
      nn::Shard s = tp.vocabulary(vocabulary);
      if (tp.size() == 1) return;
      EXPECT_EQ(s.length + s.padding, (vocabulary + tp.size() - 1) / tp.size());
      Tensor ends = zeros({tp.size()}, DType::i64, cpu);
      comm.all_gather(from_host(std::vector<int64_t>{s.begin + s.length}, {1}, cpu), ends).wait();
      auto end = ends.to_host<int64_t>();
      EXPECT_EQ(s.begin, tp.rank() == 0 ? 0 : end[size_t(tp.rank()) - 1]);
      EXPECT_EQ(end.back(), vocabulary);
    });
}

// Whose gradients are only parts.
TEST(TensorParallelTest, WholeParametersSayHowTheyAreHeld) {
  on_all([](Communicator&, const TensorParallel& tp) {
    nn::Shard s = tp.whole();
    EXPECT_EQ(s.length, -1);
    EXPECT_EQ(s.along.contains("tp"), tp.size() > 1);
    EXPECT_EQ(s.is("tp", nn::Along::parts), tp.sequence());
    EXPECT_EQ(s.is("tp", nn::Along::alike), tp.size() > 1 && !tp.sequence());
    nn::Shard inside = tp.whole_always_summed();
    EXPECT_EQ(inside.length, -1);
    EXPECT_EQ(inside.is("tp", nn::Along::parts), tp.size() > 1);
  });
}

TEST(TensorParallelTest, RefusesWhatItCannotSplit) {
  run_ranks(4, [](Communicator& comm) {
    TensorParallel tp(comm), sequence(comm, {.sequence = true});
    expect_config_error([&] { ColumnLinear(8, 10, tp); },
                        {"tensor parallel: tp=4 does not divide 10 features\n"
                         "  Valid tp for them: 1, 2, 5, 10."});
    expect_config_error([&] { RowLinear(6, 8, tp); }, {"tp=4 does not divide 6 features"});
    const char* words = "sequence parallel: 4 ranks do not divide 10 token rows";
    expect_config_error([&] { sequence.scatter_rows(filled({10, 2}, 1)); }, {words});
    expect_config_error([&] { sequence.leave(filled({10, 2}, 1)); }, {words});
    expect_config_error([&] { sequence.rows(10); }, {words});
    EXPECT_EQ(tp.rows(10), 10);

    VocabularyEmbedding table(5, 4, tp);  // never refused
    table.materialize(cpu, f64, 1);
    Tensor outside = from_host(std::vector<int64_t>{1, 5}, {2}, cpu);
    expect_data_error([&] { table(outside); }, {"5"});
    Tensor logits = table.logits(filled({2, 4}, 1));
    expect_data_error([&] { table.cross_entropy(logits, outside); }, {"5"});
  });
}

}  // namespace triax::parallel::tensor_parallel_test
