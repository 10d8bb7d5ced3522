// Two interleaved spirals, told apart by a small network: modules, a fused optimizer, a learning
// rate schedule, accuracy on points that were never trained on. Run alone or under mpirun.
#include <fmt/core.h>

#include <cmath>

#include "triax/autograd/backward.h"
#include "triax/core/check.h"
#include "triax/nn/linear.h"
#include "triax/optim/adamw.h"
#include "triax/optim/schedule.h"
#include "triax/parallel/comm/launch/world.h"
#include "triax/parallel/data/data_parallel.h"

using namespace triax;

struct Mlp : nn::Module {
  nn::Linear& in = child<nn::Linear>("in", 2, 64, nn::LinearOptions{.std = 1});
  nn::Linear& hidden = child<nn::Linear>("hidden", 64, 64, nn::LinearOptions{.std = 0.15});
  nn::Linear& out = child<nn::Linear>("out", 64, 2);
  Tensor operator()(const Tensor& x) const { return out(hidden.gelu(in.gelu(x))); }
};

struct Points {
  Tensor x, label;  // [count, 2], [count]
};

/// Returns points [first, first + count) of an endless sequence.
Points spirals(int64_t first, int64_t count) {
  std::vector<float> x;
  std::vector<int32_t> label;
  for (int64_t i = first; i < first + count; ++i) {
    double t = 0.25 + 3 * random::uniform(1, uint64_t(i), 0), turn = i % 2 ? M_PI : 0;
    double noise = 0.05 * random::normal(2, uint64_t(i));
    x.push_back(float((t + noise) * std::cos(2 * t + turn)));
    x.push_back(float((t + noise) * std::sin(2 * t + turn)));
    label.push_back(int32_t(i % 2));
  }
  return {from_host(x, {count, 2}, cpu), from_host(label, {count}, cpu)};
}

double accuracy(const Mlp& net, const Points& p) {
  NoGrad guard;
  auto logits = net(p.x).to_host<float>();
  auto label = p.label.to_host<int32_t>();
  double right = 0;
  for (size_t i = 0; i < label.size(); ++i)
    right += (logits[2 * i + 1] > logits[2 * i]) == label[i];
  return right / double(label.size());
}

int classify(int argc, char** argv) {
  parallel::World world(argc, argv);
  const int64_t steps = 400, batch = 240, mine = batch / world.size();
  Mlp net;
  parallel::DataParallel data(net, world.comm(), {.seed = 1});
  optim::AdamW adam(data.slots(), {.weight_decay = 0.01});
  optim::Schedule lr{.peak = 1e-2, .warmup = 20, .steps = steps};
  for (int64_t step = 1; step <= steps; ++step) {
    Points p = spirals(step * batch + world.rank() * mine, mine);
    data.begin();
    backward(cross_entropy(net(p.x), p.label) / world.size());
    data.finish();
    adam.step(lr.at(step), optim::clip_factor(data.norm().value, 1));
  }
  double right = accuracy(net, spirals(0, batch));
  if (world.rank() == 0) fmt::print("{:.1f} % of unseen points told apart\n", 100 * right);
  check(right > 0.95, "mlp: accuracy {}; expected above 0.95", right);
  return 0;
}

int main(int argc, char** argv) { return parallel::run_main(argc, argv, classify); }
