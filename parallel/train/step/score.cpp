#include <cmath>

#include "triax/core/check.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/train/step/step.h"

namespace triax::parallel {

Score top_k(int64_t k) {
  check(k >= 1, "top_k: k {}; expected at least 1", k);
  return [k](const Tensor& prediction, const Tensor& target) {
    check(prediction.rank() == 2 && prediction.size(0) == target.numel(),
          "top_k: predictions {} of targets {}; expected [rows, classes] and [rows]",
          prediction.shape(), target.shape());
    auto logits = prediction.to(f32).to_host<float>();
    auto classes = target.to(i64).to_host<int64_t>();
    int64_t width = prediction.size(1), right = 0;
    for (int64_t r = 0; r < prediction.size(0); ++r) {
      int64_t c = classes[size_t(r)], before = 0;
      if (c < 0 || c >= width) continue;
      const float* row = logits.data() + r * width;
      if (std::isnan(row[c])) continue;
      for (int64_t i = 0; i < width; ++i)  // NaN counts as larger
        before += !(row[i] <= row[c]) || (row[i] == row[c] && i < c);
      right += before < k;
    }
    return double(right);
  };
}

/// Adds scores up as evaluate() does the loss, for batches without target. All ranks of a
/// tensor-parallel group have the predictions; the first adds them up.
std::vector<double> Replica::score(const Batches& batches, int64_t micros, const Scores& scores) {
  size_t width = options_.bitwise ? WideSum::words : 1;
  std::vector<double> sums(scores.size() * width);
  PipelineRun run = collect(zeros({1}, f64, mesh_.world().device()), micros, batches);
  run.batch = [whole = run.batch](int micro) {
    nn::Batch batch = whole(micro);
    batch.first = nn::evaluation, batch.target = {};
    return batch;
  };
  auto add = [&](const Tensor& prediction, const Tensor& target) {
    size_t i = 0;
    for (auto& [name, score] : scores) try {
        double value = score(prediction, target), *sum = &sums[i++ * width];
        if (options_.bitwise) WideSum::add(value, sum);
        else *sum += value;
      } catch (...) {
        rethrow_from("score " + name);
      }
  };
  run.output = [&](int micro, const Tensor& y) {
    if (tp_.rank() != 0) return;
    Tensor prediction = y.detach().to(cpu),
           target = options_.share(batches(micro), row_place_).target;
    int64_t parts = options_.bitwise ? target.size(0) : 1;  // one sample each
    auto part = [parts](const Tensor& x, int64_t i) {
      return x.narrow(0, i * (x.size(0) / parts), x.size(0) / parts);
    };
    for (int64_t i = 0; i < parts; ++i) add(part(prediction, i), part(target, i));
  };
  try {
    pipeline_.infer(run);
  } catch (...) {
    rethrow_from("scores of predictions, for which the model is given batches without target");
  }
  return sums;
}

std::vector<double> Step::score(const Batches& batches, int64_t micros, const Scores& scores) {
  auto mine = replica_.score(batches, micros, scores);
  Tensor all = from_host(mine, {std::ssize(mine)}, mesh_.world().device());
  mesh_.world().all_reduce(all).wait();
  return all.to_host<double>();
}

}  // namespace triax::parallel
