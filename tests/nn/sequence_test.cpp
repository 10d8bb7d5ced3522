// What a Sequence makes of its children: layers in order, each called in the form it has.
#include "triax/nn/sequence.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/nn/linear.h"
#include "triax/nn/samples.h"

namespace triax::nn {
namespace {

using namespace test;
using Values = std::vector<double>;

Tensor row(const Values& v) { return from_host(v, {int64_t(v.size())}, cpu).to(f64); }
Batch batch() { return {.input = row({1, 2, 3}), .target = row({10, 20, 30})}; }

/// Form (x, batch).
struct AddTarget : Module {
  Tensor operator()(const Tensor& x, const Batch& b) const { return x + b.target; }
};
/// Form (batch).
struct InputTwice : Module {
  Tensor operator()(const Batch& b) const { return b.input * 2.; }
};
/// Form (x).
struct Times : Module {
  explicit Times(double factor) : factor_(factor) {}
  Tensor operator()(const Tensor& x) const { return x * factor_; }

 private:
  double factor_;
};
/// Forms (x, batch) and (x): the first is the one that counts.
struct Both : Module {
  Tensor operator()(const Tensor& x, const Batch& b) const { return x * b.target; }
  Tensor operator()(const Tensor& x) const { return x; }
};
/// With a form for selective recomputation, which says that it is the one that ran.
struct Selective : Module {
  Tensor operator()(const Tensor& x) const { return x; }
  Tensor selective(const Tensor& x, const Batch& b) const { return x + b.input; }
};

/// A sequence of children of these types, named a, b, c, ...
template <class... Kinds> struct Of : Sequence {
  Of() { (add<Kinds>(std::string(1, char('a' + int(layers().size())))), ...); }
};

std::vector<bool> readers(const Sequence& model) {
  std::vector<bool> all;
  for (auto& layer : model.layers()) all.push_back(layer.reads_batch);
  return all;
}

struct Twice : Times {
  Twice() : Times(2) {}
};

TEST(SequenceTest, CallsEachLayerInTheFormItHas) {
  EXPECT_EQ(values(Of<Twice, AddTarget, Twice>()(batch())), (Values{24, 48, 72}));
  EXPECT_EQ(values(Of<AddTarget>()(batch())), (Values{11, 22, 33})) << "the first x is the input";
  EXPECT_EQ(values(Of<InputTwice, Twice>()(batch())), (Values{4, 8, 12}));
  EXPECT_EQ(values(Of<Twice, Twice, InputTwice>()(batch())), (Values{2, 4, 6}));
  EXPECT_EQ(values(Of<Twice, Both>()(batch())), (Values{20, 80, 180}));
}

TEST(SequenceTest, OnlyTheFirstLayerAndReadersNeedTheBatch) {
  using Flags = std::vector<bool>;
  EXPECT_EQ(readers(Of<Twice, Twice, AddTarget, InputTwice, Twice, Both>()),
            (Flags{true, false, true, true, false, true}));
  Of<Twice, Twice> model;
  EXPECT_EQ(values(model.layers()[1].run(row({1}), {})), Values{2});
}

TEST(SequenceTest, LayersThatHaveASelectiveFormOfferIt) {
  Of<Twice, Selective, Selective> model;
  EXPECT_FALSE(model.layers()[0].selective);
  for (size_t i : {1, 2}) {
    ASSERT_TRUE(model.layers()[i].selective);
    EXPECT_EQ(values(model.layers()[i].selective(row({5, 5, 5}), batch())), (Values{6, 7, 8}));
    EXPECT_EQ(values(model.layers()[i].run(row({5, 5, 5}), batch())), (Values{5, 5, 5}));
  }
}

/// A table used by two layers, and one layer without a module.
struct Tied : Sequence {
  Linear& table = child<Linear>("table", 3, 3, LinearOptions{.std = 1, .bias = false});
  Tied() {
    auto product = [this](auto& x, auto&) { return table(view(x, {1, 3})); };
    add("in", {&table}, product);
    add("halve", {}, [](const Tensor& x) { return x * 0.5; });
    add("out", {&table}, product);
  }
};

TEST(SequenceTest, LayersMayShareAModuleOrHaveNone) {
  Tied model;
  model.materialize(cpu, f64, 1);
  ASSERT_EQ(model.parameters().size(), 1u);
  Tensor w = model.table.parameters()[0]->value, x = batch().input.view({1, 3});
  EXPECT_EQ(values(model(batch())), values(linear(linear(x, w) * 0.5, w)));
  EXPECT_EQ(readers(model), (std::vector<bool>{true, false, true}));
  EXPECT_EQ(model.layers()[0].uses, std::vector<Module*>{&model.table});
  EXPECT_EQ(model.layers()[2].uses, std::vector<Module*>{&model.table});
  EXPECT_TRUE(model.layers()[1].uses.empty());
}

TEST(SequenceTest, FunctionsMayTakeTheInputTheBatchOrBoth) {
  struct Functions : Sequence {
    Functions() {
      add("input", {}, [](const Tensor& x) { return x * 2.; });  // the batch's, being the first
      add("batch", {}, [](const Batch& b) { return b.input * 3.; });
      add("both", {}, [](auto& x, auto& b) { return x - b.input; });
      add("generic", {}, [](auto& x) { return view(x, {3}); });
      add("calls", {}, [calls = 0](const Tensor& x) mutable { return x * double(++calls); });
    }
  } model;
  EXPECT_EQ(values(model.layers()[0].run({}, batch())), values(batch().input * 2.));
  EXPECT_EQ(values(model(batch())), values(batch().input * 2.));
  EXPECT_EQ(values(model(batch())), values(batch().input * 4.));
  EXPECT_EQ(readers(model), (std::vector<bool>{true, true, true, false, false}));
}

TEST(SequenceTest, LayersAreChildrenByName) {
  struct Model : Sequence {
    Linear& up = add<Linear>("up", 3, 4);
    Linear& down = add<Linear>("down", 4, 1, LinearOptions{.bias = false});
  } model;
  model.bind(1);
  std::vector<std::string> names;
  for (auto* p : model.parameters()) names.push_back(p->name);
  EXPECT_EQ(names, (std::vector<std::string>{"up.weight", "up.bias", "down.weight"}));
  EXPECT_EQ(model.layers()[1].name, "down");
  EXPECT_EQ(model.layers()[1].uses, std::vector<Module*>{&model.down});
}

TEST(SequenceTest, ANameIsGivenOnce) {
  struct Repeats : Sequence {
    Repeats() {
      for (int i = 0; i < 2; ++i) add("act", {}, [](const Tensor& x) { return x; });
    }
  };
  expect_config_error([] { Repeats r; }, {"sequence: layer `act` is there already"});
}

TEST(SequenceTest, LayersWithoutAChildHavePlainNamesToo) {
  struct Named : Sequence {
    Named() {
      add("a@b", {}, [](const Tensor& x, const Batch&) { return x; });
    }
  };
  expect_config_error([] { Named n; }, {"'a@b'", "expected letters, digits, `_` and `-`"});
}

TensorSamples samples(const std::vector<uint8_t>& input, const std::vector<int64_t>& target) {
  return {from_host(input, {2, 3}, cpu).transpose(0, 1), from_host(target, {3, 2}, cpu)};
}

TEST(TensorSamplesTest, RowsBlanksAndWeights) {
  TensorSamples all = samples({1, 2, 3, 4, 5, 6}, {7, 8, 9, -1, -1, -1});
  EXPECT_EQ(all.count(), 3);
  Batch b = all.batch(std::vector<int64_t>{1, -1, 0});
  EXPECT_EQ(b.input.dtype(), u8);
  EXPECT_EQ(values(b.input), (Values{2, 5, 0, 0, 1, 4}));
  EXPECT_EQ(values(b.target), (Values{9, -1, -1, -1, 7, 8}));
  EXPECT_EQ((Values{all.weight(0), all.weight(1), all.weight(2)}), (Values{2, 1, 0}));
}

TEST(TensorSamplesTest, OtherBytesAreAnotherDataSet) {
  std::string one = samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 1}).identity();
  EXPECT_EQ(samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 1}).identity(), one);
  EXPECT_NE(samples({1, 2, 3, 4, 5, 7}, {0, 0, 0, 0, 0, 1}).identity(), one);
  EXPECT_NE(samples({1, 2, 3, 4, 5, 6}, {0, 0, 0, 0, 0, 2}).identity(), one);
}

TEST(TensorSamplesTest, RefusesOtherTensorsAndIndices) {
  Tensor two = zeros({2, 3}, f32, cpu), none = zeros({}, i32, cpu);
  for (const Tensors& bad : {Tensors{two, zeros({3}, i32, cpu)},
                             {two, two},
                             {two, none},
                             {none, zeros({1}, i32, cpu)},
                             {zeros({0}, f32, cpu), zeros({0}, i32, cpu)}})
    expect_data_error([&] { TensorSamples(bad[0], bad[1]); },
                      {"samples: input " + str(bad[0]) + ", target " + str(bad[1]),
                       "expected dim 0 of each to count samples"});
  TensorSamples all(two, zeros({2}, i32, cpu));
  for (int64_t i : {-2, 2})
    expect_error([&] { all.batch({&i, 1}); }, {fmt::format("index {}; expected 0 to 1", i)});
}

}  // namespace
}  // namespace triax::nn
