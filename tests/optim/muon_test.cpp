#include "optim/muon.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"

namespace triax::optim {
namespace {

using namespace test;

using Rows = std::vector<std::vector<double>>;

Rows rows_of(const std::vector<double>& flat, size_t rows, size_t columns) {
  Rows m(rows, std::vector<double>(columns));
  for (size_t i = 0; i < rows * columns; ++i) m[i / columns][i % columns] = flat[i];
  return m;
}
Rows transposed(const Rows& a) {
  Rows t(a[0].size(), std::vector<double>(a.size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
  return t;
}
Rows times(const Rows& a, const Rows& b) {
  Rows c(a.size(), std::vector<double>(b[0].size()));
  for (size_t i = 0; i < a.size(); ++i)
    for (size_t j = 0; j < b[0].size(); ++j)
      for (size_t k = 0; k < b.size(); ++k) c[i][j] += a[i][k] * b[k][j];
  return c;
}

/// zeropower_via_newtonschulz5 of the reference implementation, in loops; never transposed.
Rows orthogonal(Rows x) {
  double square = 0;
  for (auto& row : x)
    for (double v : row) square += v * v;
  for (auto& row : x)
    for (double& v : row) v /= std::sqrt(square) + 1e-7;
  for (int n = 0; n < 5; ++n) {
    Rows a = times(x, transposed(x)), aa = times(a, a);
    for (size_t i = 0; i < a.size(); ++i)
      for (size_t j = 0; j < a.size(); ++j) a[i][j] = -4.7750 * a[i][j] + 2.0315 * aa[i][j];
    Rows bx = times(a, x);
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t j = 0; j < x[0].size(); ++j) x[i][j] = 3.4445 * x[i][j] + bx[i][j];
  }
  return x;
}

// Matrices follow the reference, what lies around them AdamW; wide and tall, with and without
// decay.
TEST(Muon, FollowsTheAlgorithm) {
  const MuonOptions o{.momentum = 0.9, .weight_decay = 0.3, .adamw = {.weight_decay = 0.2}};
  Tensor w = filled({30}, 1), g = zeros({30}, f64, test_device());
  Slot slot{w, g, {{3, 15}, {27, 30}}, {.lr = 0.5}, {{"a", {3, 15}, 4, 3}, {"b", {17, 27}, 2, 5}}};
  Tensor w2 = clone(w);
  AdamW adam({{w2, g, slot.decayed, slot.rates}}, o.adamw);
  Muon muon({slot}, o);
  struct Place {
    size_t begin, rows, columns;
    double decay;
  };
  const Place places[] = {{3, 4, 3, 0.3}, {17, 2, 5, 0}};
  auto expected = values(w);
  std::vector<double> velocity(30);
  for (int t = 1; t <= 3; ++t) {
    copy_(g, filled({30}, 10 + uint64_t(t)));
    muon.step(0.1, 2), adam.step(0.1, 2);
    auto grads = values(g);
    for (auto& p : places) {
      std::vector<double> u;
      for (size_t i = p.begin; i < p.begin + p.rows * p.columns; ++i) {
        velocity[i] = 0.9 * velocity[i] + 0.1 * 2 * grads[i];
        u.push_back(0.9 * velocity[i] + 0.1 * 2 * grads[i]);
      }
      Rows direction = orthogonal(rows_of(u, p.rows, p.columns));
      double size = 0.2 * std::sqrt(double(std::max(p.rows, p.columns))), lr = 0.1 * 0.5;
      for (size_t i = 0; i < u.size(); ++i) {
        double& x = expected[p.begin + i];
        x -= lr * (size * direction[i / p.columns][i % p.columns] + p.decay * x);
      }
    }
    auto got = values(w), rest = values(w2);
    for (size_t i = 0; i < 30; ++i) {
      bool in_matrix = (i >= 3 && i < 15) || (i >= 17 && i < 27);
      ASSERT_NEAR(got[i], in_matrix ? expected[i] : rest[i], 1e-10) << "step " << t << " at " << i;
    }
  }
}

// The iteration acts on each singular value by itself, so a diagonal matrix shows them.
TEST(Muon, SingularValuesComeNearToOne) {
  std::vector<double> x(64), singular{0.6, 0.5, 0.4, 0.3, 0.25, 0.2, 0.1, 0.05};
  for (size_t i = 0; i < 8; ++i) x[9 * i] = singular[i];
  auto y = values(orthogonalized(from_host(x, {8, 8}, test_device()), 5));
  for (size_t i = 0; i < 64; ++i) {
    bool diagonal = i % 9 == 0;
    EXPECT_NEAR(y[i], diagonal ? 0.95 : 0, diagonal ? 0.3 : 0) << "at " << i;
  }
}

TEST(Muon, StateNamesItsPlaceInTheSlot) {
  Slot slot{filled({20}, 1, bf16), filled({20}, 2, f32), {}, {}, {{"w", {4, 16}, 3, 4}}};
  std::vector<std::pair<std::string, Range>> got;
  Muon muon({slot, slot});
  for (auto& s : muon.state())
    if (s.slot == 1) got.push_back({s.kind, {s.begin, s.begin + s.value.numel()}});
  std::vector<std::string> text;
  for (auto& [kind, range] : got)
    text.push_back(kind + " " + std::to_string(range.begin) + " " + std::to_string(range.end));
  EXPECT_EQ(text, (std::vector<std::string>{"velocity 4 16", "master 4 16", "m 0 4", "v 0 4",
                                            "master 0 4", "m 16 20", "v 16 20", "master 16 20"}));
}

TEST(Muon, MatricesThatAreCutAreRefused) {
  Slot slot{filled({20}, 1), filled({20}, 2), {}, {}, {{"block0.up.weight", {0, 20}, 3, 8}}};
  expect_config_error(
      [&] { Muon muon({slot}); },
      {"muon: this rank holds 20 of the 3 x 8 elements of block0.up.weight", "--zero 0"});
  expect_error([&] { Muon muon({}, {.momentum = 1}); }, {"muon: momentum 1"});
}

}  // namespace
}  // namespace triax::optim
