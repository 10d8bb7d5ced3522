#pragma once
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>

#include "examples/minigpt/config.h"
#include "examples/minigpt/model.h"
#include "triax/parallel/comm/threads/thread_comm.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/plan/rehearsal.h"
#include "triax/parallel/train/trainer.h"

/// @file minigpt as tests run it: models, layouts, and training on ranks that are threads.
namespace triax::minigpt {

/// 600 letters of 13 kinds.
inline std::string some_text() {
  std::string text;
  for (int i = 0; i < 600; ++i) text += char('a' + (i * i / 3 + i * 7) % 13);
  return text;
}

/// How a model is cut over ranks.
struct Layout {
  int dp = 1, pp = 1, tp = 1;
  bool sequence_parallel = false;
  int zero = 0;
  std::string schedule = "1f1b";
  int chunks = 0;  ///< 0: as many as the schedule wants
  std::string placement = {};

  parallel::MeshShape mesh() const { return {dp, pp, tp}; }
  int ranks() const { return dp * pp * tp; }
};

inline std::string describe(const Layout& l) {
  return fmt::format("dp {} pp {} tp {}{}, ZeRO {}, {}, {} chunks, placement `{}`", l.dp, l.pp,
                     l.tp, l.sequence_parallel ? " sequence" : "", l.zero, l.schedule, l.chunks,
                     l.placement);
}

/// A training run of minigpt.
struct Job : Config {
  parallel::TrainOptions train;

  parallel::StepOptions& step() { return train.step; }
  const parallel::StepOptions& step() const { return train.step; }
  int ranks() const { return step().mesh.size(); }
  void set(const Layout& l) {
    parallel::StepOptions& s = train.step;
    s.mesh = l.mesh();
    s.sequence_parallel = l.sequence_parallel;
    s.zero = parallel::Zero(l.zero);
    s.schedule = l.schedule;
    s.chunks = l.chunks > 0 ? l.chunks : s.schedules.at(l.schedule).chunks;
    s.placement = l.placement;
  }
};

inline parallel::Build build_of(const ModelConfig& model) {
  return [model](auto& tp) { return std::make_unique<Gpt>(model, tp); };
}

/// The job's model on `content`, of which nothing is held out.
inline parallel::Task task_of(const Job& job, const std::string& content = some_text()) {
  auto tokenizer = text::Tokenizer::from_text(content, "text");
  text::TextData data(content, tokenizer, {.context = job.model.context, .name = "text"});
  text::Text text{tokenizer, data, "text"};
  text.label_smoothing = job.text.label_smoothing;
  parallel::Task task = text.task();
  ModelConfig model = job.model;
  model.vocab = text::vocabulary(model.vocab, tokenizer);
  task.build = build_of(model);
  return task;
}

inline parallel::Facts facts_of(const parallel::Task& task, const parallel::StepOptions& o) {
  return probe(task.build, batch_like(task, o.micro_batch), probe_options(o));
}

/// What one replica of `mesh` trains on.
inline parallel::Feed feed_of(const parallel::Task& task, const parallel::StepOptions& o,
                              const parallel::Mesh& mesh) {
  return {task.samples,
          uint64_t(o.seed),
          {o.micro_batch, o.global_batch, mesh.dp().rank(), mesh.dp().size()}};
}

/// `body(mesh)` on every rank.
template <class Body> void on_mesh(const parallel::MeshShape& shape, const Body& body) {
  parallel::run_ranks(shape.size(), [&](parallel::Communicator& world) {
    parallel::Mesh mesh(world, shape);
    body(mesh);
  });
}

/// What training and sampling print; the log of a test does not need it.
struct Quiet {
  Quiet() { testing::internal::CaptureStdout(); }
  ~Quiet() { testing::internal::GetCapturedStdout(); }
};

/// Trains as `minigpt train` does, on as many ranks. Returns ok or stopped.
inline Exit train(const Job& job, int ranks) {
  Quiet silence;
  Config config = job;
  parallel::Task task = minigpt::task(config);
  task.settings = settings(config);
  std::atomic<Exit> result = Exit::internal;
  parallel::run_worlds(ranks, [&](parallel::World& world) {
    result = parallel::Trainer(task, job.train, world).run();
  });
  return result;
}

}  // namespace triax::minigpt
