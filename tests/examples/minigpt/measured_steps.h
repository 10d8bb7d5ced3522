#pragma once

#include <cmath>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>

#include "tests/examples/minigpt/minigpt_run.h"
#include "triax/parallel/plan/candidates.h"

/// @file Steps that others measured (tests/reference/measured/README.md), predictions of them, and
/// the fit of what data sheets do not say.
namespace triax::minigpt {

using parallel::Hardware;

/// The kernels of Megatron-LM as published in 2021 and 2022: attention writes all scores and reads
/// them back, in 16 bits; gradients of a micro-batch are added by kernels of their own, and summed
/// over dp after backward; kernels are started from Python.
class MegatronKernels : public parallel::KernelTimes {
 public:
  explicit MegatronKernels(int64_t context) : context_(double(context)) {}
  double device(const KernelWork& counted, const Hardware& h, DType dtype) const override {
    // Bytes moved for each score: scaling, mask, softmax and dropout about 9 in forward and 11 in
    // backward, and the products beside them 4 and 8. The mean over forward, recomputed forward and
    // backward; they take longer than their FLOP.
    constexpr double bytes_per_score = 15;
    KernelWork work = with_softmax(counted);
    return (work.products - work.attention) / (h.products * h.peak(dtype)) +
           double(work.kernels + work.matmuls) * h.kernel_start +
           (work.bytes + bytes_per_score * work.scores) / h.kernels / h.bandwidth;
  }
  double host(const KernelWork& counted, const Hardware& h, int tp) const override {
    // Both fitted to the steps that a100.toml is fitted to: more kernels, and from Python; and with
    // every further rank processes that share the host and wait for the slowest.
    constexpr double launches = 6.4, wait = 0.03;
    KernelWork work = with_softmax(counted);
    return double(work.kernels + work.matmuls) * h.launch * launches * (1 + wait * (tp - 1));
  }
  double gradients(double elements, const Hardware& h, DType dtype) const override {
    return 3 * double(size_of(dtype)) * elements / h.kernels / h.bandwidth;
  }
  bool overlap() const override { return false; }

 private:
  /// Its fused softmax takes a multiple of four matrices of scores (is_kernel_available in
  /// megatron/model/fused_softmax.py, 2021 to 2023); any other number is scaled, masked, normalised
  /// and rounded by ops of PyTorch's, in fp32: four more, which move 32 bytes a score.
  KernelWork with_softmax(KernelWork work) const {
    auto matrices = int64_t(work.scores / (context_ * context_));
    if (work.scores > 0 && matrices % 4 != 0) work.kernels += 4, work.bytes += 32 * work.scores;
    return work;
  }
  double context_;
};

struct Row {
  std::string group;  ///< billions of parameters; of steps on one node, width x layers
  parallel::TrainOptions options;
  ModelConfig model;
  double seconds = 0;
  double weight = 1;  ///< in a fit, and in means
  size_t half = 0;    ///< of the cross-validation, 0 or 1
};

/// The cells of a table's rows, without its header.
inline std::vector<std::vector<std::string>> cells_of(const std::string& file) {
  std::ifstream in(TRIAX_TEST_REFERENCE "/measured/" + file);
  std::vector<std::vector<std::string>> rows;
  std::string line;
  std::getline(in, line);
  while (std::getline(in, line)) {
    std::stringstream cells(line);
    for (auto& row = rows.emplace_back(); std::getline(cells, line, ',');) row.push_back(line);
  }
  return rows;
}

/// With 16-bit gradients and dropout, as Megatron-LM has them by default.
inline Row row_of(const std::string& group, const ModelConfig& model,
                  const parallel::StepOptions& s, double seconds) {
  Row r{.group = group, .model = model, .seconds = seconds};
  r.model.vocab = 51200;
  r.model.dropout = 0.1;
  r.options.step = s;
  r.options.step.dtype = r.options.step.reduce_dtype = bf16;
  resolve(r.options, s.mesh.size());
  return r;
}

/// Full recomputation. Steps on one node have no column of parameters in front.
inline std::vector<Row> vtrain_rows(const std::string& file = "vtrain_multi_calibrate.csv") {
  std::vector<Row> rows;
  for (auto& cell : cells_of(file)) {
    size_t first = cell.size() - 11;
    auto number = [&](size_t i) { return std::stoi(cell[first + i]); };
    ModelConfig model{
        .layers = number(5), .heads = number(4), .width = number(3), .context = number(6)};
    parallel::StepOptions s{.mesh = {.dp = number(8), .pp = number(9), .tp = number(7)},
                            .micro_batch = number(2),
                            .global_batch = number(1),
                            .recompute = parallel::Recompute::block};
    std::string group = first > 0 ? cell[0] : fmt::format("{} x {}", model.width, model.layers);
    rows.push_back(row_of(group, model, s, std::stod(cell.back()) / 1e3));
  }
  return rows;
}

inline bool on_one_node(const Row& row) { return row.options.step.mesh.size() <= 8; }

/// What the steps on one node are composed of: a time for each width, tp and micro-batch.
using MeasuredTime = std::tuple<int64_t, int, int64_t>;
inline MeasuredTime measured_time(const Row& row) {
  auto& s = row.options.step;
  return {row.model.width, s.mesh.tp, s.micro_batch};
}

/// Each measured time weighs as much as a step on many nodes.
inline std::vector<Row> one_node_rows() {
  auto rows = vtrain_rows("vtrain_single.csv");
  std::map<MeasuredTime, int> steps;
  for (const Row& row : rows) ++steps[measured_time(row)];
  for (Row& row : rows) row.weight = 1. / steps[measured_time(row)];
  return rows;
}

/// Steps on many nodes, then on one. Halves of the latter have one width each, and so no measured
/// time in common.
inline std::vector<Row> all_vtrain_rows() {
  auto rows = vtrain_rows();
  for (size_t i = 0; i < rows.size(); ++i) rows[i].half = i % 2;
  for (Row& row : one_node_rows()) {
    row.half = row.model.width == 2048;
    rows.push_back(row);
  }
  return rows;
}

/// What NVIDIA published: selective recomputation came with sequence parallelism.
inline std::vector<Row> published_rows(const std::string& file) {
  std::vector<Row> rows;
  for (auto& cell : cells_of(file)) {
    auto number = [&](size_t i) { return std::stoi(cell[i]); };
    bool full = cell[10] == "block";
    ModelConfig model{.layers = number(6), .heads = number(5), .width = number(4), .context = 2048};
    int tp = number(7), pp = number(8);
    parallel::StepOptions s{.mesh = {.dp = number(1) / tp / pp, .pp = pp, .tp = tp},
                            .micro_batch = number(3),
                            .global_batch = number(2)};
    s.recompute = full ? parallel::Recompute::block : parallel::Recompute::selective;
    s.sequence_parallel = !full;
    s.chunks = number(9);
    if (s.chunks > 1) s.schedule = "interleaved";
    rows.push_back(row_of(cell[0], model, s, std::stod(cell[11])));
  }
  return rows;
}

/// Enough for a context of 8,192.
inline std::string long_text() {
  std::string text;
  for (int i = 0; i < 40000; ++i) text += char('a' + (i * i / 3 + i * 7) % 23);
  return text;
}

/// Predicts rows on hardware that may change in between.
class Predictions {
 public:
  explicit Predictions(std::vector<Row> measured)
      : hardware(parallel::hardware_named("a100")), rows(std::move(measured)) {
    for (const Row& row : rows) {
      if (times_.contains(row.group)) continue;
      Job job;
      job.model = row.model;
      auto& task = tasks_.emplace(row.group, task_of(job, long_text())).first->second;
      auto kernels = std::make_shared<MegatronKernels>(row.model.context);
      times_.emplace(row.group, parallel::StepTimes(task, hardware, kernels));
    }
  }
  double operator()(const Row& row) { return times_.at(row.group)(row.options.step).total(); }

  Hardware hardware;
  const std::vector<Row> rows;

 private:
  std::map<std::string, parallel::Task> tasks_;
  std::map<std::string, parallel::StepTimes> times_;
};

inline double mean_error(Predictions& predict, const std::vector<const Row*>& rows) {
  double sum = 0, weights = 0;
  for (auto* row : rows) {
    sum += row->weight * std::fabs(predict(*row) / row->seconds - 1);
    weights += row->weight;
  }
  return sum / weights;
}

/// What data sheets do not say, and how far the logarithm may be off by.
struct Unknown {
  std::vector<double Hardware::*> fields;  ///< which go together
  double expected, spread, most;
};
inline const Unknown unknowns[] = {
    {{&Hardware::products}, 0.8, 0.06, 1},
    {{&Hardware::kernels, &Hardware::update}, 0.65, 0.3, 1},
    {{&Hardware::link_part}, 0.75, 0.08, 1},
    {{&Hardware::network_part}, 0.75, 0.2, 1},
    {{&Hardware::latency}, 40e-6, 0.7, 2e-3},
    {{&Hardware::launch}, 10e-6, 0.7, 1e-3},
};

/// Coordinate descent. The cost: logarithms of errors, robust, since some of these runs were
/// disturbed, and how far the unknowns are from what was expected of them.
inline void fit(Predictions& predict, const std::vector<const Row*>& rows) {
  auto set = [&](const Unknown& u, double value) {
    for (auto field : u.fields) predict.hardware.*field = std::min(value, u.most);
  };
  auto cost = [&] {
    double sum = 0;
    for (auto* row : rows) {
      double e = std::log(predict(*row) / row->seconds) / 0.1;
      sum += row->weight * 2 * (std::sqrt(1 + e * e) - 1);
    }
    for (const Unknown& u : unknowns)
      sum += std::pow(std::log(predict.hardware.*u.fields[0] / u.expected) / u.spread, 2);
    return sum;
  };
  for (const Unknown& u : unknowns) set(u, u.expected);
  double best = cost();
  for (double step = 0.3; step > 0.003; step /= 2)
    for (bool moved = true; moved;) {
      moved = false;
      for (const Unknown& u : unknowns)
        for (double factor : {std::exp(step), std::exp(-step)}) {
          double before = predict.hardware.*u.fields[0];
          set(u, before * factor);
          if (double now = cost(); now < best - 1e-9) best = now, moved = true;
          else set(u, before);
        }
    }
}

inline std::string shown(const Hardware& h) {
  return fmt::format(
      "products {:.3f}, kernels {:.3f}, launch {:.2e}, link {:.3f}, network {:.3f}, "
      "latency {:.1e}",
      h.products, h.kernels, h.launch, h.link_part, h.network_part, h.latency);
}

inline std::vector<const Row*> all_of(const std::vector<Row>& rows) {
  std::vector<const Row*> all;
  for (const Row& row : rows) all.push_back(&row);
  return all;
}

}  // namespace triax::minigpt
