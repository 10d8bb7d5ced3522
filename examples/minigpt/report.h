#pragma once
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "core/host_copy.h"
#include "examples/minigpt/config.h"
#include "examples/minigpt/text_data.h"
#include "optim/loss_scaler.h"
#include "parallel/data/data_parallel.h"

namespace triax::minigpt {

/// What ranks add up after each step (and after a validation).
struct Totals {
  double loss = 0;          ///< the sum of the ranks' parts
  double memory_bytes = 0;  ///< high-water of tensor memory, largest rank
  bool stop = false;        ///< a rank was asked to stop
};
/// The same on their way to the host, which goes on.
class TotalsToCome {
 public:
  /// `sums` f64 of all ranks: the loss first. Collective over `world`.
  TotalsToCome(parallel::Communicator& world, const Tensor& sums);
  /// Both wait for them.
  Totals totals() const;
  std::vector<double> sums() const { return sums_.values().to_host<double>(); }

 private:
  HostCopy sums_, tops_;
};

/// One line of metrics.jsonl; see docs/runs.md for the fields.
struct StepRecord {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;
  double memory_bytes = 0;
  double loss_scale = 1;
  bool skipped = false;       ///< the loss or a gradient was not finite: nothing was changed
  std::string overflow = {};  ///< where the first inf or NaN of a skipped step came from
  std::optional<double> val_loss = {};
};

/// `block0.up.weight of rank 1, micro-batch 2`; empty for none.
std::string describe(const parallel::DataParallel::NonFinite& found);
/// Throws Error 77 if the step's loss or gradient is not finite and another loss scale cannot help.
void check_finite(const StepRecord& r, const TrainConfig& c, const optim::LossScaler& scaler);

/// Prints progress and writes metrics.jsonl, with one voice: silent on all ranks but the first.
class Report {
 public:
  /// `c` must outlive it.
  enum class Voice { loud, silent };
  Report(const TrainConfig& c, Voice voice) : config_(c), speaks_(voice == Voice::loud) {}
  /// What is about to be trained, on what.
  void describe(const std::string& mesh, const TextData& text, const Tokenizer& tokenizer) const;
  /// `step`: the one that was resumed from, 0 for a fresh start. Later metrics are dropped.
  void start(int64_t parameters, int64_t step);
  void step(const StepRecord& r);
  void say(const std::string& text) const;
  void finish(int64_t step, bool stopped);

 private:
  using Clock = std::chrono::steady_clock;
  void keep_until(int64_t step);
  void print(const StepRecord& r, double seconds);

  const TrainConfig& config_;
  bool speaks_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
  Clock::time_point last_step_, last_line_;
  double mean_seconds_ = 0;
};

}  // namespace triax::minigpt
