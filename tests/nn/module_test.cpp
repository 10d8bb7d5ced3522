#include "triax/nn/module.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/core/check.h"
#include "triax/nn/dropout.h"
#include "triax/nn/embedding.h"
#include "triax/nn/linear.h"
#include "triax/nn/norm.h"

namespace triax::nn {
namespace {

using namespace test;

struct Pair : Module {
  Linear& up = child<Linear>("up", 3, 4);
  Linear& down = child<Linear>("down", 4, 2, LinearOptions{.std = 1, .bias = false});
};
struct Net : Module {
  LayerNorm& norm = child<LayerNorm>("norm", 3);
  Pair& pair = child<Pair>("pair");
};

TEST(ModuleTest, NamesFollowTheTree) {
  Net net;
  net.materialize(test_device(), f32, 1);
  std::vector<std::string> names;
  for (auto* p : net.parameters()) names.push_back(p->name);
  EXPECT_EQ(names, (std::vector<std::string>{"norm.gamma", "norm.beta", "pair.up.weight",
                                             "pair.up.bias", "pair.down.weight"}));
  EXPECT_EQ(values(net.parameters()[0]->value), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(values(net.parameters()[3]->value), (std::vector<double>{0, 0, 0, 0}));
}

TEST(ModuleTest, ConstructionAllocatesNothing) {
  int64_t before = memory::counter()->live();
  Net net;
  EXPECT_EQ(memory::counter()->live(), before);
  net.materialize(test_device(), f32, 1);
  EXPECT_EQ(memory::counter()->live(memory::parameters), 4 * (3 + 3 + 12 + 4 + 8));
}

TEST(ModuleTest, NamesAreUniqueAndBindIsOnce) {
  struct Twice : Module {
    Twice() {
      parameter({.name = "w", .full = {1}});
      parameter({.name = "w", .full = {1}});
    }
  };
  struct Named : Module {
    explicit Named(const char* name) { child<Linear>(name, 1, 1); }
  };
  expect_config_error([] { Twice t; }, {"two parameters named 'w'"});
  for (const char* name : {"a.b", "a@b", "a\"b", "a/b", "a b", "", "\xC3\xA9"})
    expect_config_error([&] { Named n(name); },
                        {fmt::format("'{}'", name), "expected letters, digits, `_` and `-`"});
  Named plain("A_b-9");
  Net net;
  net.bind(1);
  expect_error([&] { net.bind(1); }, {"bind was called twice"});
}

TEST(ModuleTest, ErrorsOfConstructorsNameTheLayer) {
  struct Bad : Module {
    Bad() { fail(Exit::config, "bad: {} features; expected more", 3); }
  };
  struct Block : Module {
    Bad& mlp = child<Bad>("mlp");
  };
  struct Outer : Module {
    Block& block = child<Block>("block0");
  };
  std::string place;
  try {
    Outer outer;
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "block0: mlp: bad: 3 features; expected more");
    EXPECT_EQ(e.code(), Exit::config);
    place = e.place();
  }
  EXPECT_TRUE(says(place, "module_test.cpp:"));
}

// Two models with the same names start alike; another seed or another name starts otherwise.
TEST(ModuleTest, InitialValuesDependOnSeedAndName) {
  Linear a(5, 7), b(5, 7), c(5, 7);
  a.materialize(test_device(), f32, 1);
  b.materialize(test_device(), f32, 1);
  c.materialize(test_device(), f32, 2);
  EXPECT_EQ(values(a.parameters()[0]->value), values(b.parameters()[0]->value));
  EXPECT_NE(values(a.parameters()[0]->value), values(c.parameters()[0]->value));
}

// correctness 21: a slice holds what the full tensor has at its place, for both dims.
TEST(ModuleTest, ASliceIsAPieceOfTheFullTensor) {
  Parameter full{.name = "w", .full = {6, 4, 5}, .init = {.mean = 0.5, .std = 2}};
  full.key = random::key(3, "w");
  Tensor whole = empty(full.full, f64, test_device());
  full.fill(whole);
  for (int dim : {0, 1, 2})
    for (int64_t begin : {0, 1, 3}) {
      Parameter part = full;
      part.shard = {.dim = dim, .begin = begin, .length = full.full[dim] - begin - (begin > 0)};
      Tensor slice = empty(part.local(), f64, test_device());
      part.fill(slice);
      EXPECT_EQ(values(slice), values(whole.narrow(dim, begin, part.shard.length))) << dim;
    }
  Parameter wrong = full;
  wrong.shard = {.dim = 0, .begin = 4, .length = 3};
  expect_error([&] { wrong.local(); }, {"parameter w", "[4, 7)", "dim 0"});
}

TEST(ModuleTest, InitialValuesHaveTheStatedMoments) {
  Parameter p{.name = "w", .full = {400, 500}, .init = {.mean = 1, .std = 0.5}};
  p.key = random::key(1, "w");
  Tensor x = empty(p.full, f32, test_device());
  p.fill(x);
  double mean = 0, square = 0;
  for (double v : values(x)) mean += v;
  mean /= double(x.numel());
  for (double v : values(x)) square += (v - mean) * (v - mean);
  EXPECT_NEAR(mean, 1, 0.005);
  EXPECT_NEAR(std::sqrt(square / double(x.numel())), 0.5, 0.005);
}

TEST(ModuleTest, DropoutFollowsSeedNameAndToken) {
  struct Two : Module {
    Dropout& a = child<Dropout>("a", 0.5);
    Dropout& b = child<Dropout>("b", 0.5);
  };
  Two m;
  m.bind(7);
  Tensor ones = full({8, 16}, 1, f32, test_device());
  auto all = values(m.a(ones, 100));
  EXPECT_EQ(values(m.a(ones.narrow(0, 0, 3), 105)),
            std::vector<double>(all.begin() + 5 * 16, all.end()));  // a slice of the rows
  EXPECT_NE(values(m.a(ones, 108)), all);                           // other tokens
  EXPECT_NE(values(m.b(ones, 100)), all);                           // another name
  EXPECT_EQ(values(m.a(ones, evaluation)), values(ones));
  double kept = 0;
  for (double v : values(m.a(full({100, 100}, 1, f32, test_device()), 0))) kept += v;
  EXPECT_NEAR(kept / 10000, 1, 0.05);
}

}  // namespace
}  // namespace triax::nn
