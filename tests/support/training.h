#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/expect_error.h"
#include "tests/support/tiny_task.h"
#include "triax/parallel/parity/parity.h"

/// @file Whole runs in this process, and what came of them.
namespace triax::test {

/// Keeps what is printed while it lives.
class Printed {
 public:
  Printed() { testing::internal::CaptureStdout(); }
  Printed(const Printed&) = delete;
  ~Printed() {
    if (keeps_) testing::internal::GetCapturedStdout();
  }
  /// All of it, in one line of single blanks: a terminal's width folds lines anywhere.
  std::string text() {
    keeps_ = false;
    std::string line;
    for (char c : testing::internal::GetCapturedStdout()) {
      if (c == '\n') c = ' ';
      if (c != ' ' || !line.ends_with(' ')) line += c;
    }
    return line;
  }

 private:
  bool keeps_ = true;
};

/// Exit code and losses of the steps, as the first rank has them, and what was printed.
struct Ran {
  Exit code = Exit::internal;
  std::vector<double> losses = {};
  std::string said = {};
};

/// A whole run on threads; `with` sees each rank's trainer first.
inline Ran train(const parallel::Task& task, const parallel::TrainOptions& o,
                 const std::function<void(parallel::Trainer&)>& with = {}) {
  Ran ran;
  Printed printed;
  parallel::run_worlds(o.step.mesh.size(), [&](parallel::World& world) {
    parallel::Trainer trainer(task, o, world);
    trainer.on({.step = [&](auto&, auto& r) { ran.losses.push_back(r.result.loss); }});
    if (with) with(trainer);
    Exit code = trainer.run();
    if (world.rank() == 0) ran.code = code;
  });
  ran.said = printed.text();
  return ran;
}
inline Ran train(const parallel::TrainOptions& o) { return train(task_of(), o); }

/// The losses of `first`, which is stopped, and of the `rest` of the run are those of `straight`.
inline void expect_resumed(const parallel::Task& task, const parallel::TrainOptions& straight,
                           parallel::TrainOptions first, parallel::TrainOptions rest,
                           double tolerance = 1e-5) {
  rest.out = first.out, rest.resume = "auto";
  auto expected = train(task, straight).losses, got = train(task, first).losses;
  for (double loss : train(task, rest).losses) got.push_back(loss);
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], tolerance) << i;
}

/// Returns what differs first from a run of one rank; empty for nothing.
inline std::string difference(const parallel::Task& task, const parallel::TrainOptions& o,
                              const parallel::Trace& reference) {
  auto d = compare_with_reference(task, o, reference);
  return d ? fmt::format("step {}: {} {}: {}", d->step, d->what, d->name, d->how_much) : "";
}
inline std::string difference(const parallel::Task& task, const parallel::TrainOptions& o,
                              parallel::OneRank takes = parallel::OneRank::whole_batch) {
  return difference(task, o, trace(task, reference_of(o, takes)));
}

template <class Model = TinyNet> std::string difference(const parallel::TrainOptions& o) {
  return difference(task_of<Model>(), o);
}

/// Mesh, ZeRO stage and dtype, for the text of a failure.
inline std::string name_of_run(const parallel::TrainOptions& o) {
  auto& s = o.step;
  return fmt::format("dp {} pp {} tp {} ZeRO {} {} {}", s.mesh.dp, s.mesh.pp, s.mesh.tp,
                     int(s.zero), name(s.dtype), s.schedule);
}

}  // namespace triax::test
