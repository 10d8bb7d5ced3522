#pragma once
// What scatter_gather has to come to on any devices: that of one.
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "triax/autograd/backward.h"
#include "triax/nn/batch_norm.h"
#include "triax/nn/dropout.h"
#include "triax/nn/linear.h"
#include "triax/parallel/data/scatter_gather.h"

namespace triax::parallel::cases {

/// Rows in, a loss per row out; with batch norm and dropout.
struct SplitModel : nn::Module {
  nn::Linear& up = child<nn::Linear>("up", 3, 8);
  nn::BatchNorm& norm = child<nn::BatchNorm>("norm", 8, 2);  // of two samples each
  nn::Dropout& drop = child<nn::Dropout>("drop", 0.25);
  nn::Linear& down = child<nn::Linear>("down", 8, 1);
  Tensor operator()(const nn::Batch& batch) const {
    Tensor x = relu(norm(up(batch.input), batch));
    return down(drop(x, nn::serial_of_row(batch, 1)));
  }
};

struct SplitStep {
  std::vector<float> losses;
  std::vector<std::vector<float>> gradients, statistics;
};

/// One step on ten samples.
inline SplitStep split_step(const std::vector<Device>& devices) {
  SplitModel model;
  model.materialize(devices[0], f32, 3);
  nn::Batch batch{test::filled({10, 3}, 5, f32).to(cpu), zeros({10}, i32, cpu), 40};
  Tensor y =
      scatter_gather(model, devices, batch, [&](const nn::Batch& part) { return model(part); });
  EXPECT_EQ(y.shape(), (Shape{10, 1}));
  EXPECT_EQ(y.device(), devices[0]);
  backward(sum(y * y) / 10.);
  SplitStep step{y.detach().to_host<float>(), {}, {}};
  for (auto* p : model.parameters()) step.gradients.push_back(grad(p->value).to_host<float>());
  for (auto* b : model.buffers()) {
    b->update();
    step.statistics.push_back(b->value.to_host<float>());
  }
  return step;
}

inline void expect_near(const std::vector<float>& a, const std::vector<float>& b,
                        const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5) << what << " " << i;
}

inline void expect_like_one_device(const std::vector<Device>& devices) {
  SplitStep one = split_step({devices[0]}), many = split_step(devices);
  expect_near(many.losses, one.losses, "losses");
  for (size_t i = 0; i < one.gradients.size(); ++i)
    expect_near(many.gradients[i], one.gradients[i], "gradients");
  bool equal = 10 % devices.size() == 0;  // parts, of which every one counts as much
  for (size_t i = 0; equal && i < one.statistics.size(); ++i)
    expect_near(many.statistics[i], one.statistics[i], "statistics");
  EXPECT_EQ(autograd::live_nodes(), 0);
}

}  // namespace triax::parallel::cases
