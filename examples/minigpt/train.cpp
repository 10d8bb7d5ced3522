#include "examples/minigpt/train.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"
#include "core/error.h"
#include "core/gpus.h"
#include "examples/minigpt/agreement.h"
#include "examples/minigpt/ledger.h"
#include "examples/minigpt/rehearsal.h"
#include "examples/minigpt/report.h"
#include "examples/minigpt/run_directory.h"
#include "examples/minigpt/stepper.h"
#include "examples/minigpt/text_data.h"
#include "parallel/mesh.h"

namespace triax::minigpt {
namespace {

/// The training loop. It has no branch on any parallel setting.
Exit run(const TrainConfig& c, const TextData& text, parallel::Mesh& mesh, RunDirectory& directory,
         Report& report) {
  Stepper stepper(c, text, mesh);
  const int64_t from = directory.open(stepper.data(), stepper.adam(), stepper.scaler());
  int64_t step = from;
  report.start(stepper.data().parameter_count(), step);
  auto due = [&](int64_t every) { return every > 0 && step % every == 0; };
  bool stopping = false;
  while (step < c.steps && !stopping) {
    stepper.take(++step);
    bool known = due(c.val_every) || due(c.save_every) || step == c.steps;
    auto records = stepper.records(known ? Stepper::Upto::all : Stepper::Upto::lag);
    stopping = stepper.asked_to_stop();
    bool last = step == c.steps || stopping;
    if (last) std::ranges::move(stepper.records(Stepper::Upto::all), std::back_inserter(records));
    if (text.val_tokens() > 0 && (due(c.val_every) || last))
      records.back().val_loss = stepper.validate();
    for (const StepRecord& r : records) report.step(r);
    if (due(c.save_every) || last)
      directory.save(step, stepper.data(), stepper.adam(), stepper.scaler());
  }
  if (c.ledger) report.say(describe_ledger(mesh, stepper.replica(), step - from));
  report.finish(step, stopping);
  return stopping ? Exit::stopped : Exit::ok;
}

}  // namespace

Exit train(TrainConfig config, parallel::Communicator& world, parallel::Communicator& host) {
  settle(config, host);
  if (config.nondeterministic) set_gpu_bits(GpuBits::may_differ);
  std::string text = read_text(config.data);
  Tokenizer tokenizer = Tokenizer::from_text(text, "data: " + config.data);
  config.model.vocab = vocabulary(config.model.vocab, tokenizer);
  TextData data(
      text, tokenizer,
      {.context = config.model.context, .val_fraction = config.val_fraction, .name = config.data});
  check_agreement(host, to_toml(config) + "text_hash = " + data.hash() + "\n");
  const MeshConfig& m = config.mesh;
  parallel::Mesh mesh(world, {.dp = int(m.dp), .pp = int(m.pp), .tp = int(m.tp)});
  RunDirectory directory(config, tokenizer, data, host);
  Report report(config, world.rank() == 0 ? Report::Voice::loud : Report::Voice::silent);
  std::string stages = parallel::on_first(host, [&] { return preview(config, world.device()); });
  report.describe(describe(mesh.shape()) + stages, data, tokenizer);
  try {
    return run(config, data, mesh, directory, report);
  } catch (const Error& e) {
    if (e.code() != Exit::memory) throw;
    throw Error(e.code(), fmt::format("{}\n  {}", e.what(), less_memory), e.place());
  }
}

}  // namespace triax::minigpt
