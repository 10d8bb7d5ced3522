#include "examples/minigpt/train.h"

#include "core/check.h"
#include "examples/minigpt/agreement.h"
#include "examples/minigpt/feed.h"
#include "examples/minigpt/ledger.h"
#include "examples/minigpt/offload.h"
#include "examples/minigpt/precision.h"
#include "examples/minigpt/rehearsal.h"
#include "examples/minigpt/replica.h"
#include "examples/minigpt/report.h"
#include "examples/minigpt/run_directory.h"
#include "examples/minigpt/text_data.h"
#include "optim/schedule.h"
#include "parallel/mesh.h"

namespace triax::minigpt {
namespace {

/// One rank's share of the model, its optimizer and its place in the data.
class Trainer {
 public:
  Trainer(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh)
      : config_(c),
        text_(text),
        mesh_(mesh),
        feed_(c, text, mesh.dp()),
        replica_(c, mesh),
        adam_(data().slots(), adam_options(c)),
        schedule_{.peak = c.lr, .low = c.min_lr, .warmup = c.warmup, .steps = c.steps},
        scaler_(scaling(c)) {}

  /// The training loop. It has no branch on any parallel setting.
  Exit run(RunDirectory& directory, Report& report) {
    const int64_t from = directory.open(data(), adam_, scaler_);
    int64_t step = from;
    report.start(data().parameter_count(), step);
    bool stopping = false;
    while (step < config_.steps && !stopping) {
      ++step;
      Totals totals = add_up(mesh_.world(), forward_backward(step));
      StepRecord record{.step = step,
                        .loss = totals.loss / double(tokens_per_step()),
                        .lr = schedule_.at(adam_.steps() + 1),
                        .tokens = tokens_per_step(),
                        .memory_bytes = totals.memory_bytes};
      update(record);
      stopping = totals.stop;
      bool last = step == config_.steps || stopping;
      if (text_.val_tokens() > 0 && (due(config_.val_every, step) || last))
        record.val_loss = validate();
      report.step(record);
      if (due(config_.save_every, step) || last) directory.save(step, data(), adam_, scaler_);
    }
    if (config_.ledger) report.say(describe_ledger(mesh_, replica_, step - from));
    report.finish(step, stopping);
    return stopping ? Exit::stopped : Exit::ok;
  }

 private:
  parallel::DataParallel& data() { return replica_.data(); }
  int64_t tokens_per_step() const { return config_.global_batch * config_.model.context; }
  double forward_backward(int64_t step, Replica::Watch watch = Replica::Watch::off) {
    return replica_.step([&](int64_t micro) { return feed_.at(step, micro); },
                         scaler_.scale() / double(tokens_per_step()), watch);
  }
  static bool due(int64_t every, int64_t step) { return every > 0 && step % every == 0; }

  /// Mean loss over all held-out tokens, shared out over the replicas.
  double validate() {
    const auto& dp = mesh_.dp();
    int64_t each = config_.micro_batch * dp.size();
    auto batch = [&](int64_t micro) {
      int64_t first = micro * each + dp.rank() * config_.micro_batch;
      nn::Batch b = text_.val_batch(first, config_.micro_batch);
      b.first = nn::evaluation;
      return b;
    };
    double mine = replica_.evaluate((text_.val_windows() + each - 1) / each, batch);
    return add_up(mesh_.world(), mine).loss / double(text_.val_tokens());
  }

  /// Change the weights, unless a gradient is not finite: then nothing changes but the loss scale.
  void update(StepRecord& r) {
    auto norm = data().norm();
    r.loss_scale = scaler_.scale();
    r.grad_norm = norm.value / r.loss_scale;
    r.skipped = norm.non_finite > 0;
    if (r.skipped) r.overflow = trace_overflow(r.step);
    scaler_.update(r.skipped);
    check_finite(r, config_, scaler_);
    if (r.skipped) return;
    adam_.step(r.lr, optim::clip_factor(r.grad_norm, config_.clip) / r.loss_scale);
    data().publish();
  }

  /// Runs the unchanged step once more, watched: where did the first inf or NaN come from?
  std::string trace_overflow(int64_t step) {
    forward_backward(step, Replica::Watch::on);
    return describe(data().first_non_finite());
  }

  const TrainConfig& config_;
  const TextData& text_;
  parallel::Mesh& mesh_;
  Feed feed_;
  Replica replica_;
  optim::AdamW adam_;
  optim::Schedule schedule_;
  optim::LossScaler scaler_;
};

}  // namespace

Exit train(TrainConfig config, parallel::Communicator& world, parallel::Communicator& host) {
  parallel::OverCommunicator ranks(host);
  settle(config, ranks);
  std::string text = read_text(config.data);
  Tokenizer tokenizer = Tokenizer::from_text(text, "data: " + config.data);
  config.model.vocab = vocabulary(config.model.vocab, tokenizer);
  TextData data(
      text, tokenizer,
      {.context = config.model.context, .val_fraction = config.val_fraction, .name = config.data});
  check_agreement(ranks, to_toml(config) + "text_hash = " + data.hash() + "\n");
  const MeshConfig& m = config.mesh;
  parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
  RunDirectory directory(config, tokenizer, data, host);
  Report report(config, world.rank() == 0 ? Report::Voice::loud : Report::Voice::silent);
  std::string stages = parallel::on_first(ranks, [&] { return preview(config); });
  report.describe(describe(mesh.shape()) + stages, data, tokenizer);
  return Trainer(config, data, mesh).run(directory, report);
}

}  // namespace triax::minigpt
