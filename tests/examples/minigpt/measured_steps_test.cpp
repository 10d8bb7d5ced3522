// Predicted step times beside those that others measured (tests/reference/measured/README.md).
#include "tests/examples/minigpt/measured_steps.h"

#include <gtest/gtest.h>

#include <functional>

#include "examples/llama/llama.h"

namespace triax::minigpt::measured_steps_test {

double mean(const std::vector<double>& all) {
  return std::accumulate(all.begin(), all.end(), 0.) / double(all.size());
}

/// Of numbers that may be sorted by, and errors: the mean error of each tenth.
std::vector<double> means_of_tenths(std::vector<std::pair<double, double>> errors) {
  std::ranges::sort(errors);
  std::vector<double> means;
  for (size_t tenth = 0; tenth < 10; ++tenth) {
    size_t begin = tenth * errors.size() / 10, end = (tenth + 1) * errors.size() / 10;
    std::vector<double> part;
    for (size_t i = begin; i < end; ++i) part.push_back(errors[i].second);
    means.push_back(mean(part));
  }
  return means;
}

/// Fitted to one half of the rows and held against the other, in turn: what `told` gets.
void cross_validate(Predictions& predict, const std::function<void(const Row&, double)>& told) {
  for (size_t half : {0u, 1u}) {
    std::vector<const Row*> others;
    for (const Row& row : predict.rows)
      if (row.half != half) others.push_back(&row);
    fit(predict, others);
    fmt::print("fitted to half {}: {}\n", 1 - half, shown(predict.hardware));
    for (const Row& row : predict.rows)
      if (row.half == half) told(row, std::fabs(predict(row) / row.seconds - 1));
  }
}

TEST(MeasuredSteps, AreNearWhatWasFittedOnOthers) {
  Predictions predict(all_vtrain_rows());
  std::map<std::string, std::vector<double>> held;  // errors by group, of steps on many nodes
  std::vector<std::pair<double, double>> by_size;
  std::vector<double> many;
  double one = 0, weights = 0;  // on one node
  cross_validate(predict, [&](const Row& row, double off) {
    if (on_one_node(row)) {
      one += row.weight * off;
      weights += row.weight;
      return;
    }
    held[row.group].push_back(off);
    many.push_back(off);
    by_size.push_back({std::stod(row.group) * 1e6 + row.seconds, off});
  });
  for (auto& [group, errors] : held) {
    fmt::print("{} billion, held: mean error {:.1f} %\n", group, 100 * mean(errors));
    EXPECT_LE(mean(errors), 0.09) << group;
  }
  auto tenths = means_of_tenths(by_size);
  for (size_t i = 0; i < 10; ++i) {
    fmt::print("tenth {} by size, held: mean error {:.1f} %\n", i + 1, 100 * tenths[i]);
    EXPECT_LE(tenths[i], i == 7 ? 0.16 : 0.091) << i;  // some runs were disturbed
  }
  one /= weights;
  fmt::print("held: mean error {:.1f} %, on one node {:.1f} %\n", 100 * mean(many), 100 * one);
  EXPECT_LE(mean(many), 0.08);
  EXPECT_LE(one, 0.092);
}

TEST(MeasuredSteps, AreWhatA100IsFittedTo) {
  Predictions predict(all_vtrain_rows());
  Hardware shipped = predict.hardware;
  fit(predict, all_of(predict.rows));
  fmt::print("fitted to all: {}\n", shown(predict.hardware));
  for (const Unknown& u : unknowns)
    EXPECT_NEAR(predict.hardware.*u.fields[0] / (shipped.*u.fields[0]), 1, 0.06);
}

TEST(MeasuredSteps, AreNearTheShippedHardware) {
  Predictions predict(vtrain_rows());
  for (const Row& row : predict.rows)
    fmt::print("{} billion: {:.2f} s, measured {:.2f} s\n", row.group, predict(row), row.seconds);
  std::map<std::string, std::vector<const Row*>> groups;
  for (const Row& row : predict.rows) groups[row.group].push_back(&row);
  for (auto& [group, rows] : groups) {
    double error = mean_error(predict, rows);
    auto predicted = [&](auto* row) { return predict(*row); };
    const Row* chosen = *std::ranges::min_element(rows, {}, predicted);
    const Row* best = *std::ranges::min_element(rows, {}, [](auto* row) { return row->seconds; });
    double regret = chosen->seconds / best->seconds - 1;
    fmt::print("{} billion: mean error {:.1f} %, regret {:.1f} %\n", group, 100 * error,
               100 * regret);
    EXPECT_LE(error, 0.085) << group;
    EXPECT_LE(regret, 0.05) << group;
  }
  double all = mean_error(predict, all_of(predict.rows));
  fmt::print("all: mean error {:.1f} %\n", 100 * all);
  EXPECT_LE(all, 0.07);
}

// Their nodes had eight 200 Gbit/s cards. Nothing is fitted to these rows.
TEST(MeasuredSteps, OfOthersAreNearTheShippedHardware) {
  for (auto* file : {"narayanan_2021.csv", "korthikanti_2022.csv"}) {
    Predictions predict(published_rows(file));
    predict.hardware.network = 200e9;
    for (const Row& row : predict.rows) {
      fmt::print("{} billion: {:.2f} s, measured {:.2f} s: {:+.1f} %\n", row.group, predict(row),
                 row.seconds, 100 * (predict(row) / row.seconds - 1));
      EXPECT_NEAR(predict(row), row.seconds, 0.07 * row.seconds) << row.group;
    }
    double all = mean_error(predict, all_of(predict.rows));
    fmt::print("{}: mean error {:.1f} %\n", file, 100 * all);
    EXPECT_LE(all, 0.04) << file;
  }
}

// Widths of 1,024 and 2,048, whose kernels are so short that most steps wait for the host.
TEST(MeasuredSteps, OfSmallModelsOnOneNodeAreNearTheShippedHardware) {
  Predictions predict(one_node_rows());
  std::map<int, std::vector<const Row*>> by_tp;
  for (const Row& row : predict.rows) by_tp[row.options.step.mesh.tp].push_back(&row);
  for (auto& [tp, rows] : by_tp) {
    double error = mean_error(predict, rows);
    fmt::print("tp {}, {} rows: mean error {:.1f} %\n", tp, rows.size(), 100 * error);
    EXPECT_LE(error, 0.1) << tp;
  }
  double all = mean_error(predict, all_of(predict.rows));
  fmt::print("all: mean error {:.1f} %\n", 100 * all);
  EXPECT_LE(all, 0.075);
}

// Steps of triax on one GPU. Nothing is fitted to those on an H100, one constant to the first of
// the H200's. What `calibrate` wrote on an H100 predicts them, too.
TEST(MeasuredSteps, OfTriaxAreNearTheShippedHardware) {
  std::string calibrated = TRIAX_TEST_REFERENCE "/measured/h100_calibrated.toml";
  for (auto& cell : cells_of("triax_on_gpus.csv")) {
    auto number = [&](size_t i) { return std::stoll(cell[i]); };
    Job job;
    job.model = {.layers = number(1), .heads = number(2), .width = number(3), .context = 1024};
    job.model.vocab = 50304;
    parallel::StepOptions& s = job.step();
    s.dtype = bf16;
    s.micro_batch = s.global_batch = number(4);
    resolve(job.train, 1);
    parallel::Task task = task_of(job, long_text());
    Hardware hardware = parallel::hardware_named(cell[0]);
    auto stages =
        parallel::foresee(task.build, batch_like(task, s.micro_batch), s, hardware.kind());
    double bytes = double(stages[0].peak), took = std::stod(cell[5]), held = std::stod(cell[6]);
    fmt::print("{}, {} layers, B {}: measured {:.1f} ms; {:.0f} bytes, held {:.0f}\n", cell[0],
               job.model.layers, s.micro_batch, took, bytes, held);
    EXPECT_NEAR(bytes, held, 1e-4 * held);
    for (const std::string& name : {cell[0], calibrated}) {
      if (name == calibrated && cell[0] != "h100") continue;
      double ms = 1e3 * parallel::StepTimes(task, parallel::hardware_named(name))(s).total();
      fmt::print("  {:.1f} ms predicted, {:+.1f} %{}\n", ms, 100 * (ms / took - 1),
                 name == calibrated ? ", calibrated" : "");
      EXPECT_NEAR(ms, took, (name == calibrated ? 0.045 : 0.06) * took);
    }
  }
}

// Llama 3 405B on H100, table 4 of Grattafiori et al. 2024, arXiv 2407.21783: 430 and 400 TFLOP/s
// on 8,192 and 16,384 GPUs without recomputation, a block in each of 8 chunks a stage. Gradients
// and optimizer state were sharded. Taken as ZeRO 1, which sums gradients once a step and gathers
// weights behind the next forward; when the authors did is not known.
TEST(MeasuredSteps, OfLlama3AreNearTheShippedHardware) {
  LlamaConfig c{.layers = 126,
                .width = 16384,
                .heads = 128,
                .kv_heads = 8,
                .hidden = 53248,
                .context = 8192,
                .vocab = 128256};
  Job job;
  job.model.context = c.context;
  parallel::Task task = task_of(job, long_text());
  task.build = [c](auto& tp) { return std::make_unique<Llama>(c, tp); };
  Hardware hardware = parallel::hardware_named("h100");
  parallel::StepTimes times(task, hardware);
  for (auto [gpus, measured] : {std::pair(8192, 430.), std::pair(16384, 400.)}) {
    parallel::StepOptions& s = job.step();
    s = {.mesh = {.dp = gpus / 128, .pp = 16, .tp = 8}, .micro_batch = 1, .global_batch = 2048};
    s.zero = parallel::Zero::optimizer;
    s.dtype = bf16;
    s.sequence_parallel = true;
    s.schedule = "interleaved", s.chunks = 8;
    resolve(job.train, gpus);
    double tflops = times.model_flop(s) / times(s).total() / gpus / 1e12;
    fmt::print("Llama 3 405B, {} GPUs: {:.0f} TFLOP/s, measured {}: {:+.1f} %\n", gpus, tflops,
               measured, 100 * (tflops / measured - 1));
    EXPECT_NEAR(tflops, measured, 0.05 * measured);
  }
}

/// A model of cards.csv: a Llama, or a GPT where it has no size of a gated MLP.
parallel::Build build_of_cells(const std::vector<std::string>& cell) {
  auto number = [&](size_t i) { return std::stoll(cell[i]); };
  if (number(6) == 0)
    return build_of(ModelConfig{.layers = number(2),
                                .heads = number(4),
                                .width = number(3),
                                .context = number(9),
                                .vocab = number(7)});
  LlamaConfig c{.layers = number(2),
                .width = number(3),
                .heads = number(4),
                .kv_heads = number(5),
                .hidden = number(6),
                .context = number(9),
                .vocab = number(7),
                .qkv_bias = true,
                .tied = number(8) == 1};
  return [c](auto& tp) { return std::make_unique<Llama>(c, tp); };
}

/// Returns how much longer a row of cards.csv is predicted to take than it did.
double error_of_card(const std::vector<std::string>& cell) {
  auto number = [&](size_t i) { return std::stoll(cell[i]); };
  Job job;
  job.model.context = number(9);
  parallel::Task task = task_of(job, long_text());
  task.build = build_of_cells(cell);
  parallel::StepOptions& s = job.step();
  s = {.mesh = {.dp = int(number(10))}, .micro_batch = number(11), .global_batch = number(12)};
  s.zero = cell[0] == "a100-40gb" ? parallel::Zero::parameters : parallel::Zero::optimizer;
  s.dtype = bf16;
  if (cell[13] == "selective") s.recompute = parallel::Recompute::selective;
  if (cell[13] == "block") s.recompute = parallel::Recompute::block;
  resolve(job.train, s.mesh.dp);
  Hardware hardware = parallel::hardware_named(cell[0]);
  parallel::StepTimes times(task, hardware);
  double tokens = double(number(12) * number(9)), seconds = times(s).total();
  fmt::print("{} {} on {}: {:.0f} tokens/s, measured {}: {:+.1f} %\n", cell[0], cell[1], cell[10],
             tokens / seconds, cell[14], 100 * (seconds / tokens * std::stod(cell[14]) - 1));
  return seconds / tokens * std::stod(cell[14]) - 1;
}

// Other programs on cards that triax has not run on. PyTorch's FSDP is slower than what is
// predicted, as on the A100 of 80 GB.
TEST(MeasuredSteps, OfOtherCardsAreNearTheShippedHardware) {
  std::map<std::string, std::vector<double>> errors;
  for (auto& cell : cells_of("cards.csv")) errors[cell[0]].push_back(error_of_card(cell));
  const std::map<std::string, std::pair<double, double>> between = {
      {"a100-40gb", {-0.25, 0}}, {"l40s", {-0.11, 0.11}}, {"rtx4090", {-0.05, 0.25}}};
  ASSERT_EQ(errors.size(), between.size());
  for (auto& [card, all] : errors) {
    auto [least, most] = between.at(card);
    EXPECT_GE(*std::ranges::min_element(all), least) << card;
    EXPECT_LE(*std::ranges::max_element(all), most) << card;
  }
}

// Its scores went to memory and back; ours stay on the chip.
TEST(MeasuredSteps, TakeLongerWithStoredScores) {
  Hardware a100 = parallel::hardware_named("a100");
  KernelWork core{.products = 1e12, .attention = 1e12, .scores = 1e9};
  EXPECT_GT(MegatronKernels(1024).device(core, a100, bf16), a100.seconds(core, bf16));
}

}  // namespace triax::minigpt::measured_steps_test
