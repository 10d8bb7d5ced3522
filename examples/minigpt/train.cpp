#include "examples/minigpt/train.h"

#include <cmath>
#include <ctime>
#include <sstream>

#include "autograd/backward.h"
#include "core/check.h"
#include "examples/minigpt/model.h"
#include "examples/minigpt/report.h"
#include "examples/minigpt/run_directory.h"
#include "examples/minigpt/text_data.h"
#include "optim/adamw.h"
#include "optim/schedule.h"
#include "parallel/data/data_parallel.h"
#include "parallel/data/sampler.h"
#include "parallel/mesh.h"

namespace triax::minigpt {
namespace {

using parallel::Communicator;

constexpr auto sum_of_rows = CrossEntropyOptions::Reduction::sum;

/// One rank's model, optimizer and place in the data.
class Trainer {
 public:
  Trainer(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh)
      : config_(c),
        text_(text),
        dp_(mesh.dp()),
        order_(text.samples(), uint64_t(c.seed)),
        model_(c.model),
        data_(model_, dp_, {.seed = uint64_t(c.seed)}),
        adam_(data_.slots(), {.beta1 = c.beta1, .beta2 = c.beta2, .weight_decay = c.weight_decay}),
        schedule_{.peak = c.lr, .low = c.min_lr, .warmup = c.warmup, .steps = c.steps} {}

  /// The training loop. It has no branch on any parallel setting.
  Exit run(RunDirectory& directory, Report& report) {
    int64_t step = directory.open(data_, adam_);
    report.start(data_.parameter_count(), step);
    bool stopping = false;
    while (step < config_.steps && !stopping) {
      ++step;
      data_.begin(config_.accumulation());
      double loss = 0;
      for (int64_t micro = 0; micro < config_.accumulation(); ++micro) {
        Batch batch = next_batch(step, micro);
        Tensor sum = loss_of(batch);
        loss += sum.item();
        backward(sum, full({}, 1.0 / double(tokens_per_step()), f32, cpu));
      }
      data_.finish();
      Totals totals = add_up(dp_, {.loss = loss});
      StepRecord record{.step = step,
                        .loss = totals.loss / double(tokens_per_step()),
                        .grad_norm = data_.norm().value,
                        .lr = schedule_.at(step),
                        .tokens = tokens_per_step(),
                        .memory_bytes = totals.memory_bytes};
      check_finite(record);
      adam_.step(record.lr, optim::clip_factor(record.grad_norm, config_.clip));
      stopping = totals.stop;
      bool last = step == config_.steps || stopping;
      if (text_.val_tokens() > 0 && (due(config_.val_every, step) || last))
        record.val_loss = validate();
      report.step(record);
      if (due(config_.save_every, step) || last) directory.save(step, data_, adam_);
    }
    report.finish(step, stopping);
    return stopping ? Exit::stopped : Exit::ok;
  }

 private:
  int64_t tokens_per_step() const { return config_.global_batch * config_.model.context; }
  static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

  /// The samples of a step are cut over micro-batches, then ranks: which they are depends on the
  /// step alone.
  Batch next_batch(int64_t step, int64_t micro) {
    int64_t position =
        (step - 1) * config_.global_batch + (micro * dp_.size() + dp_.rank()) * config_.micro_batch;
    std::vector<int64_t> samples;
    for (int64_t i = 0; i < config_.micro_batch; ++i) samples.push_back(order_.at(position + i));
    Batch batch = text_.batch(samples);
    batch.first = position * config_.model.context;
    return batch;
  }

  Tensor loss_of(const Batch& batch) {
    return cross_entropy(model_.logits(batch.ids, config_.model.context, batch.first),
                         batch.targets, {.reduction = sum_of_rows});
  }

  /// Mean loss over all held-out tokens, shared out over the ranks.
  double validate() {
    NoGrad guard;
    Totals mine;
    int64_t windows = text_.val_windows(), each = config_.micro_batch;
    for (int64_t w = dp_.rank() * each; w < windows; w += dp_.size() * each) {
      Batch batch = text_.val_batch(w, std::min(each, windows - w));
      batch.first = nn::evaluation;
      mine.loss += loss_of(batch).item();
      for (int32_t target : batch.targets.to_host<int32_t>()) mine.tokens += target >= 0;
    }
    Totals all = add_up(dp_, mine);
    return all.loss / all.tokens;
  }

  void check_finite(const StepRecord& r) const {
    if (std::isfinite(r.loss) && std::isfinite(r.grad_norm)) return;
    std::string where = data_.first_non_finite();
    fail(Exit::non_finite,
         "train: loss {} and gradient norm {} at step {}, first in {}; no weight was changed. "
         "Expected finite ones: try a lower --lr, more --warmup, or --clip",
         r.loss, r.grad_norm, r.step, where.empty() ? "the loss" : where);
  }

  const TrainConfig& config_;
  const TextData& text_;
  Communicator& dp_;
  parallel::Sampler order_;
  Gpt model_;
  parallel::DataParallel data_;
  optim::AdamW adam_;
  optim::Schedule schedule_;
};

std::string timestamp() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
  return text;
}

TrainConfig resolved(TrainConfig c, int64_t ranks, const std::string& date) {
  resolve(c, ranks, date);
  return c;
}

/// Ranks that were told different things would train no model at all. Each brings all that it was
/// told, line by line. Throws Error 78 on every rank with the first line that differs.
void check_agreement(parallel::Coordinator& ranks, const std::string& mine) {
  auto told = ranks.gather(mine);
  parallel::on_first(ranks, [&] {
    for (size_t r = 1; r < told.size(); ++r) {
      std::istringstream first(told[0]), other(told[r]);
      for (std::string a, b; std::getline(first, a) && std::getline(other, b);)
        check_input(a == b, Exit::config,
                    "ranks disagree about the run\n  rank 0: {}\n  rank {}: {}\n"
                    "  Start every rank with the same flags, configuration and text.",
                    a, r, b);
    }
    return "";
  });
}

}  // namespace

Exit train(TrainConfig config, parallel::Communicator& world, parallel::Communicator& host) {
  parallel::OverCommunicator ranks(host);
  validate(resolved(config, world.size(), "now"), world.size());  // before anything is sent
  config = resolved(config, world.size(), parallel::on_first(ranks, &timestamp));
  std::string text = read_text(config.data);
  Tokenizer tokenizer = Tokenizer::from_text(text, "data: " + config.data);
  config.model.vocab = vocabulary(config.model.vocab, tokenizer);
  TextData data(
      text, tokenizer,
      {.context = config.model.context, .val_fraction = config.val_fraction, .name = config.data});
  check_agreement(ranks, to_toml(config) + "text_hash = " + data.hash() + "\n");
  parallel::Mesh mesh(world, {.dp = int(config.dp)});
  RunDirectory directory(config, tokenizer, data, host);
  Report report(config, world.rank() == 0 ? Report::Voice::loud : Report::Voice::silent);
  report.describe(describe(mesh.shape()), data, tokenizer);
  return Trainer(config, data, mesh).run(directory, report);
}

}  // namespace triax::minigpt
