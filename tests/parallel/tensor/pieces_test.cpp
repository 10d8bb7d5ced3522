// Products cut in pieces, whose transfers run beside other pieces: they give what whole products
// give, and over a link of known speed they take about the longer of the two.
#include "triax/parallel/tensor/pieces.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/link_comm.h"
#include "tests/support/slow_layer.h"
#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/parallel/tensor/linear.h"

namespace triax::parallel::pieces_test {

using namespace test;

constexpr int64_t rows = 24, width = 12;

struct Outcome {
  std::vector<double> y, dx;
  std::vector<std::vector<double>> gradients;  ///< of weights and biases
};

/// Two products of what enters, multiplied, then one that leaves; each rank's own rows or all.
Outcome run_block(const TensorParallel& tp, DType dtype, bool bias) {
  ColumnLinear up(width, 2 * width, tp, {.std = 0.3, .bias = true});
  RowLinear down(2 * width, width, tp, {.std = 0.3, .bias = bias});
  nn::Linear gate(width, 2 * width / tp.size(), {.std = 0.3});
  for (nn::Module* m : std::initializer_list<nn::Module*>{&up, &down, &gate})
    m->materialize(cpu, dtype, 1);
  int64_t n = tp.rows(rows);
  Tensor x = clone(filled({rows, width}, 1, dtype).narrow(0, tp.first_row(n), n));
  require_grad(x);
  Tensor both = tp.through(x, [&](const Tensor& all) { return gate(all) * gate.gelu(all); });
  Tensor y = x + down(both * up.gelu(x));
  backward(y, clone(filled({rows, width}, 2, dtype).narrow(0, tp.first_row(n), n)));
  Outcome run{values(y), values(grad(x)), {}};
  for (nn::Module* m : std::initializer_list<nn::Module*>{&up, &down, &gate})
    for (auto* p : m->parameters()) run.gradients.push_back(values(grad(p->value)));
  return run;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double error) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], error * std::max(1., std::fabs(want[i]))) << "element " << i;
}

TEST(PiecesTest, GiveWhatWholeProductsGive) {
  for (int ranks : {2, 3, 4})
    for (bool sequence : {false, true})
      for (auto [dtype, error] : {std::pair(f64, 1e-12), {f32, 1e-5}, {bf16, 0.1}, {f16, 0.02}})
        run_ranks(ranks, [&](Communicator& comm) {
          for (bool bias : {false, true}) {
            Outcome whole = run_block(TensorParallel(comm, {.sequence = sequence}), dtype, bias);
            for (int pieces : {2, 3, 5, 64}) {
              SCOPED_TRACE(fmt::format("{} ranks, sequence {}, {}, bias {}, {} pieces", ranks,
                                       sequence, name(dtype), bias, pieces));
              TensorParallel tp(comm, {.sequence = sequence, .pieces = pieces});
              Outcome cut = run_block(tp, dtype, bias);
              expect_close(cut.y, whole.y, error);
              expect_close(cut.dx, whole.dx, error);
              for (size_t i = 0; i < whole.gradients.size(); ++i)
                expect_close(cut.gradients[i], whole.gradients[i], error);
            }
          }
        });
  EXPECT_EQ(autograd::live_nodes(), 0);
}

TEST(PiecesTest, AreAsManyAsDivideTheRows) {
  Pieces four{.shares = 2, .count = 4};
  EXPECT_EQ(four.of(16).count, 4);
  EXPECT_EQ(four.of(6).count, 3);
  EXPECT_EQ(four.of(7).count, 1);
}

// A product behind a GELU applies its slope, if rows are not cut.
TEST(PiecesTest, OnePieceIsTheProductItself) {
  run_ranks(2, [](Communicator& comm) {
    for (bool sequence : {false, true}) {
      RowLinear down(4 * comm.size(), 6, TensorParallel(comm, {.sequence = sequence}));
      down.materialize(cpu, f32, 1);
      Tensor h = filled({rows, 4}, 1, f32);
      require_grad(h);
      Tensor y = down(gelu(h));
      EXPECT_EQ(y.meta()->node->inputs[0]->name, std::string("gelu_linear"));
    }
  });
}

// -- Beside each other, on a clock.

struct Seconds {
  double forward = 0, input = 0, weight = 0, link = 0;
};

/// Returns x, after what a product of these rows would take.
Tensor slow_product(const Tensor& x, const Tensor& weight, const Seconds& all) {
  double part = double(x.size(0)) / rows;
  auto sleep = [part](double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(part * seconds));
  };
  sleep(all.forward);
  auto rule = [=](const Tensor& dy, autograd::Into&) {
    sleep(all.input);
    return Tensors{dy};
  };
  return record("slow", clone(x.detach()), {x}, rule, {weight},
                [=](const Tensor&, autograd::Into&) {
                  sleep(all.weight);
                  return Tensors{full({1}, 1, f32, cpu)};
                });
}

/// The seconds of forward and of backward through one way in, the slower rank's.
std::pair<double, double> time_of_entering(const TensorParallelOptions& options, const Seconds& s) {
  std::array<std::pair<double, double>, 2> times;
  // Two ranks exchange half of all rows in a gathering, twice as much in a sum that all get.
  double bytes = rows * width * 4 / (options.sequence ? 2. : 1.);
  run_linked_ranks(2, {.bandwidth = bytes / s.link}, [&](Communicator& comm) {
    TensorParallel tp(comm, options);
    Tensor x = full({tp.rows(rows), width}, 1, f32, cpu), weight = full({1}, 1, f32, cpu), y;
    require_grad(x), require_grad(weight);
    Tensor in = x * 2.;
    comm.barrier();
    auto& mine = times[size_t(comm.rank())];
    mine.first = seconds([&] {
      y = tp.through(in, [&](const Tensor& all) { return slow_product(all, weight, s); });
    });
    mine.second = seconds([&] { backward(y, full(y.shape(), 1, f32, cpu)); });
    for (double g : values(grad(x))) ASSERT_EQ(g, 4);
  });
  return {std::max(times[0].first, times[1].first), std::max(times[0].second, times[1].second)};
}

// Four pieces: of three transfers, each runs beside another piece's product.
TEST(PiecesOverlapTest, RowsAreGatheredBesideProducts) {
  for (auto& s : {Seconds{.forward = 0.08, .link = 0.08},
                  {.forward = 0.12, .link = 0.06},
                  {.forward = 0.06, .link = 0.12}}) {
    double expected = std::max(s.forward, s.link) + std::min(s.forward, s.link) / 4;
    double most = (expected + s.forward + s.link) / 2;
    double got =
        least(most, [&] { return time_of_entering({.sequence = true, .pieces = 4}, s).first; });
    EXPECT_GE(got, expected * 0.98);
    EXPECT_LE(got, most);
  }
}

// Whole: beside the weight's gradient. In pieces: beside all but the first piece's work.
TEST(PiecesOverlapTest, GradientsAreSummedBesideRules) {
  Seconds s{.input = 0.06, .weight = 0.06, .link = 0.12};
  for (auto [pieces, expected] : {std::pair(1, 0.06 + 0.12), {4, 0.015 + 0.12}}) {
    double most = expected * 1.25;
    double got = least(most, [&, n = pieces] { return time_of_entering({.pieces = n}, s).second; });
    EXPECT_GE(got, expected * 0.98) << pieces;
    EXPECT_LE(got, most) << pieces << " pieces; one after the other: 0.24 s";
  }
}

}  // namespace triax::parallel::pieces_test
