// What routers choose, drop, count and add to the loss, against the definitions.
#include "triax/parallel/experts/router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_ranks.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/comm/meta_comm.h"
#include "triax/parallel/experts/exchange.h"

namespace triax::parallel::router_test {

using namespace test;

constexpr int64_t width = 6, experts = 4, time = 5, samples = 2;

nn::Batch batch() {
  nn::Batch b{.input = zeros({samples, time}, i32, cpu),
              .target = from_host(std::vector<int32_t>{1, -1, 2, 3, -1, 0, 1, 2, 3, 1},
                                  {samples, time}, cpu)};
  b.loss_seed = 1;
  return b;
}

struct Alone {
  MetaComm one{1, 0};
  TensorParallel tp{one};
  Router router;
  explicit Alone(const RouterOptions& o) : router(width, o, tp) { router.materialize(cpu, f64, 3); }
  nn::Buffer& buffer(const std::string& name) {
    for (auto* b : router.buffers())
      if (b->name == name) return *b;
    throw std::runtime_error(name);
  }
};

std::vector<int32_t> ints(const Tensor& x) { return x.to_host<int32_t>(); }

Tensor scores_of(const std::vector<double>& v) {
  return from_host(v, {int64_t(v.size()) / experts, experts}, cpu).to(f32);
}

TEST(RouterTest, WeightsOfTheChosenAddUpToOneIfAsked) {
  Tensor scores = scores_of({.1, .4, .3, .2, .7, .1, .1, .1});
  nn::Batch two{.input = zeros({1, 2}, i32, cpu)};
  Alone normal({.experts = experts, .top_k = 2});
  auto chosen = normal.router.choose(scores, two);
  EXPECT_EQ(ints(chosen.experts), (std::vector<int32_t>{1, 2, 0, 1}));
  expect_near(chosen.weights, {4. / 7, 3. / 7, 7. / 8, 1. / 8}, 1e-6);
  Alone plain({.experts = experts,
               .top_k = 2,
               .weights = RouterOptions::Weights::plain,
               .weight_scale = 2.5});
  expect_near(plain.router.choose(scores, two).weights, {1, .75, 1.75, .25}, 1e-6);
}

// A bias decides who is chosen and not with what weight; it rises where fewer than the mean chose.
TEST(RouterTest, BiasesChooseAndFollowTheCounts) {
  Alone a({.experts = experts, .top_k = 1, .bias_rate = 0.25});
  Tensor scores = scores_of({.4, .3, .2, .1, .4, .3, .2, .1});
  nn::Batch two{.input = zeros({1, 2}, i32, cpu)};
  EXPECT_EQ(ints(a.router.choose(scores, two).experts), (std::vector<int32_t>{0, 0}));
  for (auto* b : a.router.buffers()) b->update();
  expect_near(a.buffer("bias").value, {-.25, .25, .25, .25}, 0);
  expect_near(a.buffer("load").value, {1, 0, 0, 0}, 0);
  for (auto* b : a.router.buffers()) b->reset();
  auto chosen = a.router.choose(scores, two);
  EXPECT_EQ(ints(chosen.experts), (std::vector<int32_t>{1, 1}));
  expect_near(chosen.weights, {1, 1}, 0, "made to add up to 1");
  two.first = nn::evaluation;
  (void)a.router.choose(scores, two);
  for (auto* b : a.router.buffers()) EXPECT_EQ(b->count, 1) << "evaluation counts nothing";
}

// Rows 0 to 3 all want expert 0, then 1; two places each: first choices go before second ones.
TEST(RouterTest, CapacityDropsByPlaceThenByRow) {
  Alone a({.experts = experts, .top_k = 2, .capacity = 1});
  Tensor scores = scores_of({.4, .3, .2, .1, .4, .3, .2, .1, .4, .3, .2, .1, .1, .4, .3, .2});
  nn::Batch four{.input = zeros({1, 4}, i32, cpu)};
  EXPECT_EQ(ints(a.router.choose(scores, four).taken),
            (std::vector<int32_t>{0, 1, 0, 4, 4, 4, 1, 2}));
  nn::Batch apart{.input = zeros({2, 2}, i32, cpu)};  // one place each
  EXPECT_EQ(ints(a.router.choose(scores, apart).taken),
            (std::vector<int32_t>{0, 1, 4, 4, 0, 4, 1, 2}));
  four.first = nn::evaluation;
  EXPECT_EQ(ints(a.router.choose(scores, four).taken),
            (std::vector<int32_t>{0, 1, 0, 1, 0, 1, 1, 2}));
}

// Against the formulas, by central differences of the router's weight.
TEST(RouterTest, LossesAreThoseOfTheDefinitions) {
  using Over = RouterOptions::Over;
  Tensor x = filled({samples * time, width}, 1);
  for (auto score : {RouterOptions::Score::softmax, RouterOptions::Score::sigmoid})
    for (Over over : {Over::sequence, Over::micro_batch}) {
      Alone a({.experts = experts,
               .top_k = 2,
               .score = score,
               .std = 0.7,
               .balance = 0.5,
               .over = over,
               .z_loss = 0.25});
      nn::Parameter& w = *a.router.parameters()[0];
      auto scored = a.router.score(x);
      auto chosen = a.router.choose(scored.scores, batch());
      Tensor y = a.router.with_losses(x * 0., scored, chosen.experts, batch());
      backward(sum(y));
      auto loss = [&] {
        NoGrad guard;
        auto s = a.router.score(x);
        auto p = values(s.scores), logits = values(s.logits);
        auto who = ints(chosen.experts);
        double counting[] = {3, 5}, total = 0;
        std::vector<double> f(samples * experts);
        for (size_t i = 0; i < who.size(); ++i) {
          int64_t sample = int64_t(i) / (2 * time);
          for (int64_t to = 0; to < samples; ++to)
            if (over == Over::micro_batch || to == sample)
              f[size_t(to * experts + who[i])] +=
                  1. / double(2 * time) / (over == Over::sequence ? 1 : samples);
        }
        for (int64_t r = 0; r < samples * time; ++r) {
          int64_t s0 = r / time;
          double each = counting[s0] / double(time), sum = 0, exps = 0;
          for (int64_t e = 0; e < experts; ++e) sum += p[size_t(r * experts + e)];
          for (int64_t e = 0; e < experts; ++e) {
            total += 0.5 * each * experts * f[size_t(s0 * experts + e)] *
                     p[size_t(r * experts + e)] / sum;
            exps += std::exp(logits[size_t(r * experts + e)]);
          }
          total += 0.25 * each * std::log(exps) * std::log(exps);
        }
        return total;
      };
      auto gradient = values(grad(w.value));
      for (size_t i = 0; i < gradient.size(); i += 5) {
        double* at = w.value.data<double>() + i;
        double was = *at, h = 1e-3;
        *at = was + h;
        double more = loss();
        *at = was - h;
        double less = loss();
        *at = was;
        EXPECT_NEAR(gradient[i], (more - less) / (2 * h), 2e-3) << i;
      }
      expect_bitwise(y, x * 0.);
    }
}

TEST(RouterTest, RefusesMoreThanThereAre) {
  expect_error([] { Alone({.experts = 4, .top_k = 5}); }, {"top-k=5 of 4 experts; expected 1 to 4"},
               Exit::config);
}

// Rank r sends 1 + r + 2 d + e rows to expert e of rank d: they come in the order of senders, and
// what goes back lies where it lay.
TEST(ExchangeTest, RowsReachTheirExpertsAndComeBack) {
  for (int ranks : {1, 2, 3})
    run_worlds(ranks, [&](World& world) {
      Communicator& comm = world.comm();
      auto count = [](int from, int to, int e) { return int64_t(1 + from + 2 * to + e) % 4; };
      std::vector<int64_t> counts;
      std::vector<double> mine;  // the number of the row's expert
      for (int to = 0; to < ranks; ++to)
        for (int e = 0; e < 2; ++e) {
          counts.push_back(count(comm.rank(), to, e));
          for (int64_t i = 0; i < counts.back(); ++i) mine.push_back(2 * to + e + 0.01 * double(i));
        }
      Tensor x = from_host(mine, {std::ssize(mine), 1}, cpu);
      require_grad(x);
      Exchange exchange(ranks == 1 ? nullptr : &comm, counts, 1);
      Tensor there = exchange.there(x);
      size_t at = 0;
      auto come = values(there);
      ASSERT_EQ(exchange.stretches().size(), size_t(2 * ranks));
      for (int from = 0; from < ranks; ++from)
        for (int e = 0; e < 2; ++e) {
          const Stretch& s = exchange.stretches()[size_t(2 * from + e)];
          EXPECT_EQ(s.weight, e);
          EXPECT_EQ(s.rows, count(from, comm.rank(), e));
          for (int64_t i = 0; i < s.rows; ++i)
            EXPECT_EQ(come[at++], 2 * comm.rank() + e + 0.01 * double(i));
        }
      Tensor back = exchange.back(there * 2.);
      expect_bitwise(back, x * 2.);
      backward(sum(back * x.detach()));
      expect_near(grad(x), values(x.detach() * 2.), 1e-15);
    });
}

}  // namespace triax::parallel::router_test
