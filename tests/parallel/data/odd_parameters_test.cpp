// correctness 16: parameters of no, one, 63, 65, a prime number of elements, cut over ranks that
// divide none of them, train as on one rank, with every stage of ZeRO.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "tests/support/tiny_task.h"
#include "triax/autograd/backward.h"
#include "triax/autograd/ops.h"
#include "triax/optim/adamw.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/data/data_parallel.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/plan/rehearsal.h"

namespace triax::parallel::odd_parameters_test {

using test::values;

/// x [1] to what its three parameters make of it.
struct Odd : nn::Module {
  explicit Odd(int64_t size)
      : a(parameter({.name = "a", .full = {size}, .init = {.std = 0.5}, .decay = true})),
        one(parameter({.name = "one", .full = {1}, .init = {.std = 0.5}})),
        b(parameter({.name = "b", .full = {size}, .init = {.std = 0.5}, .decay = true})) {}
  Tensor operator()(const Tensor& x) const {
    return x * one + (sum(tanh(a * x)) + sum(gelu(b * x))) * 0.1;
  }
  nn::Parameter &a, &one, &b;
};

struct Model : nn::Module {
  Odd& none = child<Odd>("none", 0);
  Odd& single = child<Odd>("single", 1);
  Odd& below = child<Odd>("below", 63);
  Odd& above = child<Odd>("above", 65);
  Odd& prime = child<Odd>("prime", 127);
  nn::Layers layers() {
    nn::Layers all;
    for (Odd* m : {&none, &single, &below, &above, &prime})
      all.push_back({"odd", {m}, [m](const Tensor& x, const nn::Batch& batch) {
                       return (*m)(x.defined() ? x : batch.input);
                     }});
    return all;
  }
};

struct Result {
  std::vector<double> norms;
  std::map<std::string, std::vector<double>> weights;
};

constexpr int64_t batch = 12;  // samples: 1 to 4 ranks divide them

Result train(int ranks, Zero zero, const BucketSizes& buckets) {
  Result result;
  std::mutex lock;
  run_ranks(ranks, [&](Communicator& world) {
    Mesh mesh(world, {.dp = ranks});
    Model model;
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, {.seed = 3, .zero = zero, .buckets = buckets});
    EXPECT_EQ(data.parameter_count(), 5 + 2 * (0 + 1 + 63 + 65 + 127));
    optim::AdamW adam(data.slots(), {.eps = 1e-4, .weight_decay = 0.5});
    std::vector<double> norms;
    for (int step = 0; step < 4; ++step) {
      Tensor samples = test::filled({batch}, 100 + uint64_t(step), f32, 1);
      data.begin(batch / ranks);
      for (int64_t at = world.rank(); at < batch; at += ranks) {
        Tensor x;
        for (auto& layer : chunks[0]) x = layer.run(x, {.input = samples.narrow(0, at, 1)});
        backward(x, full({1}, 1.0 / batch, f32, cpu));
      }
      data.finish();
      norms.push_back(data.norm().value);
      adam.step(1e-2);
      data.publish();
    }
    auto hold = data.gather_all();
    std::lock_guard guard(lock);
    for (auto* p : model.parameters()) {
      auto [at, first] = result.weights.emplace(p->name, values(p->value));
      EXPECT_EQ(at->second, values(p->value)) << p->name << " differs on rank " << world.rank();
    }
    result.norms = norms;
  });
  return result;
}

TEST(OddParameters, TrainAsOnOneRank) {
  Result one = train(1, Zero::off, {});
  for (int ranks : {2, 3, 4})
    for (Zero zero : {Zero::off, Zero::optimizer, Zero::gradients, Zero::parameters})
      for (int64_t elements : {1, 100, 1 << 20}) {
        SCOPED_TRACE(fmt::format("{} ranks, zero {}, buckets of {}", ranks, int(zero), elements));
        Result other = train(ranks, zero, {.first = elements, .other = elements});
        for (size_t i = 0; i < one.norms.size(); ++i)
          EXPECT_NEAR(other.norms[i], one.norms[i], 5e-5 * one.norms[i]) << "step " << i;
        for (auto& [name, w] : one.weights)
          for (size_t i = 0; i < w.size(); ++i)
            ASSERT_NEAR(other.weights.at(name)[i], w[i], 2e-5) << name << " at " << i;
      }
}

// Gradients that ranks send each other in bf16: what is rounded, and what it costs.

constexpr int64_t size = 101;

/// sum(w * x): the gradient of w is x.
struct Weights : nn::Module {
  nn::Parameter& w = parameter({.name = "w", .full = {size}, .init = {.std = 1}});
  nn::Layers layers() {
    return {
        {"dot", {this}, [this](const Tensor&, const nn::Batch& b) { return sum(w * b.input); }}};
  }
};

Tensor gradient(int rank, int64_t micro) {
  return test::filled({size}, uint64_t(100 * rank + micro), f32, 1);
}
Tensor sent(const Tensor& x) { return x.to(bf16).to(f32); }

/// Each rank rounds what it brings, and the sum is rounded once: of all micro-batches, or of each.
Tensor expected(int ranks, int64_t micros, Zero zero) {
  Tensor total;
  auto add = [](Tensor& to, const Tensor& x) { to = to.defined() ? to + x : x; };
  bool each = zero >= Zero::gradients;
  for (int64_t m = 0; m < (each ? micros : 1); ++m) {
    Tensor over_ranks;
    for (int r = 0; r < ranks; ++r) {
      Tensor mine = gradient(r, m);
      for (int64_t more = 1; !each && more < micros; ++more) add(mine, gradient(r, more));
      add(over_ranks, sent(mine));
    }
    add(total, sent(over_ranks));
  }
  return total;
}

/// Calls `see` on every rank after the reductions of one step; returns the bytes that one sent.
double reduce(int ranks, int64_t micros, DataParallelOptions o,
              const std::function<void(DataParallel&)>& see,
              const std::function<Tensor(int, int64_t)>& given = gradient) {
  double bytes = 0;
  run_ranks(ranks, [&](Communicator& world) {
    Mesh mesh(world, {.dp = ranks});
    Weights model;
    std::vector<nn::Layers> chunks{model.layers()};
    DataParallel data(model, chunks, mesh, o);
    mesh.dp().reset_ledger();
    data.begin(micros);
    for (int64_t m = 0; m < micros; ++m)
      backward(chunks[0][0].run({}, {.input = given(world.rank(), m)}));
    data.finish();
    auto& ledger = mesh.dp().ledger();
    if (world.rank() == 0)
      bytes = ledger[Call::all_reduce].bytes + ledger[Call::reduce_scatter].bytes;
    see(data);
  });
  return bytes;
}

TEST(ReduceDtype, RoundsWhatEachRankBringsAndEachSumOnce) {
  for (int ranks : {1, 2, 3, 4})
    for (int64_t micros : {1, 3})
      for (int zero : {0, 1, 2, 3}) {
        SCOPED_TRACE(fmt::format("{} ranks, {} micro-batches, ZeRO {}", ranks, micros, zero));
        DataParallelOptions o{.zero = Zero(zero), .reduce_dtype = bf16};
        Tensor right = expected(ranks, micros, o.zero);
        if (ranks == 1) {  // nothing is sent
          right = gradient(0, 0);
          for (int64_t m = 1; m < micros; ++m) right = right + gradient(0, m);
        }
        double half = reduce(ranks, micros, o, [&](DataParallel& data) {
          for (auto& [w, begin, length, first] : data.slot_pieces(0))
            test::expect_bitwise(data.slots()[0].grad.narrow(0, begin, length),
                                 right.narrow(0, first, length));
        });
        o.reduce_dtype = f32;
        EXPECT_EQ(reduce(ranks, micros, o, [](auto&) {}), 2 * half);
      }
}

TEST(ReduceDtype, OtherDtypesAndBitwiseAreRefused) {
  auto refused = [](DataParallelOptions o, const char* what) {
    test::expect_config_error([&] { reduce(1, 1, o, [](auto&) {}); },
                              {what, "expected f32 or bf16"});
  };
  refused({.reduce_dtype = f16}, "gradients sent in f16;");
  refused({.bitwise = true, .reduce_dtype = bf16}, "gradients sent in bf16 with bitwise;");
}

TEST(ReduceDtype, AnOverflowOfOneRankIsSeenOnAll) {
  for (double bad : {double(INFINITY), double(NAN), 3.4e38})  // the last: to infinity by rounding
    for (int zero : {0, 1, 2, 3})
      reduce(
          3, 2, {.zero = Zero(zero), .reduce_dtype = bf16},
          [&](DataParallel& data) {
            EXPECT_EQ(data.norm().non_finite, zero == 0 ? 3 : 1) << bad << ", ZeRO " << zero;
          },
          [&](int rank, int64_t micro) {
            Tensor x = gradient(rank, micro);
            if (rank == 1 && micro == 1) fill_(x.narrow(0, 70, 1), bad);
            return x;
          });
}

TEST(ReduceDtype, AnyMeshIsOneRankWithinItsRounding) {
  Task task = test::task_of();
  int number = 0;
  for (MeshShape mesh : {MeshShape{2, 1, 1}, {4, 1, 1}, {2, 2, 1}, {2, 1, 2}, {2, 2, 2}})
    for (int zero : {0, 1, 2, 3}) {
      auto o = test::tiny_options(mesh);
      o.steps = 6;
      o.step.zero = Zero(zero), o.step.reduce_dtype = bf16;
      o.step.micro_batch = 2;  // accumulation
      o.step.dtype = ++number % 3 == 1 ? f16 : number % 3 == 2 ? bf16 : f32;
      auto d = compare_with_reference(task, o, trace(task, reference_of(o)));
      EXPECT_FALSE(d) << mesh.dp << mesh.pp << mesh.tp << " ZeRO " << zero << " step " << d->step
                      << ": " << d->what << " of " << d->name << ": " << d->how_much;
    }
}

TEST(ReduceDtype, ThePlannerCountsWhatIsSent) {
  Task task = test::task_of();
  for (int zero : {0, 1, 2, 3}) {
    auto o = test::tiny_options({2, 1, 1});
    o.step.zero = Zero(zero);
    resolve(o, 2);
    auto reductions = [&](DType dtype, Zero as) {
      StepOptions s = o.step;
      s.reduce_dtype = dtype, s.zero = as;
      return foresee(task.build, batch_like(task, s.micro_batch), s).at(0).dp.bytes;
    };
    // ZeRO-3 gathers weights, in fp32, twice as much as it reduces gradients.
    double gathered = zero == 3 ? 2 * reductions(f32, Zero::gradients) : 0;
    double wide = reductions(f32, Zero(zero)), narrow = reductions(bf16, Zero(zero));
    if (zero < 3) EXPECT_EQ(wide, 2 * narrow) << zero;
    else EXPECT_NEAR(narrow, wide - gathered / 4, 0.05 * wide);
  }
}

}  // namespace triax::parallel::odd_parameters_test
