// Resuming with another global batch, precision or seed (TrainOptions::resume_changed).
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <mutex>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_task.h"
#include "tests/support/training.h"
#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/train/runs/initial_weights.h"
#include "triax/parallel/train/trainer.h"

namespace triax::parallel::resume_changed_test {

using namespace test;

/// Samples that note which of them were trained on, and under which serial numbers, once told to:
/// a trainer asks for some before it starts.
struct Noted : nn::Samples {
  std::shared_ptr<nn::Samples> all = noise(100);
  mutable std::mutex lock;
  mutable std::map<int64_t, int64_t> seen;  // index by serial number
  std::atomic<bool> noting = false;
  int64_t count() const override { return all->count(); }
  nn::Batch batch(std::span<const int64_t> indices) const override { return all->batch(indices); }
  nn::Batch augmented(std::span<const int64_t> indices, int64_t first) const override {
    std::lock_guard guard(lock);
    for (size_t i = 0; noting && i < indices.size(); ++i) {
      EXPECT_FALSE(seen.contains(first + int64_t(i))) << "trained on twice: " << first + int64_t(i);
      seen[first + int64_t(i)] = indices[i];
    }
    return batch(indices);
  }
  std::string identity() const override { return all->identity(); }
};

/// Writes the manifest of step 3 anew, behind the right checksum.
void change_state(const std::string& run, const std::function<void(CheckpointState&)>& change) {
  Manifest m = read_manifest(run + "/step-3");
  change(m.state);
  write_bytes(run + "/step-3/manifest.json", to_text(m));
}

/// In the text `settings` of its state.
void change_setting(const std::string& run, const std::string& from, const std::string& to) {
  change_state(run, [&](CheckpointState& state) {
    std::string& text = state["settings"];
    size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << text;
    text.replace(at, from.size(), to);
  });
}

// Another CPU would make other bits.
TEST(ResumeChanged, ABitwiseRunSaysThatTheInstructionLevelIsAnother) {
  TemporaryDirectory dir;
  auto o = tiny_options();
  o.out = dir / "run", o.step.bitwise = true;
  train(o);
  std::string level = "instruction level = ", now = backend(cpu).name();
  change_setting(o.out, level + now, level + "other");
  o.resume = "auto", o.steps = 4;
  EXPECT_TRUE(says(train(o).said, "instruction level was other, now " + now));
}

// 3 steps of 16, 2 of 8, and one more of 8 that needs no flag: the sixth begins at sample 64.
TEST(ResumeChanged, AnotherGlobalBatchGoesOnWithTheNextSample) {
  TemporaryDirectory dir;
  auto noted = std::make_shared<Noted>();
  Task task = task_of();
  task.samples = noted;
  auto o = tiny_options();
  o.out = dir / "run", o.val_every = 0;
  auto go = [&] {
    train(task, o, [&](Trainer& t) {
      t.on({.start = [&](Trainer&) { noted->noting = true; },
            .end = [&](Trainer&) { noted->noting = false; }},
           On::all);
    });
  };
  go();
  o.resume = "auto", o.steps = 5, o.step.global_batch = 8;
  expect_config_error([&] { train(task, o); },
                      {"global-batch 16; this run asks for 8", "--resume-changed allows"});
  o.resume_changed = true, o.step.mesh = {.dp = 2}, o.step.micro_batch = 4;
  go();
  o.resume_changed = false, o.steps = 6, o.step.mesh = {};
  go();
  Sampler order(100, uint64_t(o.step.seed));
  ASSERT_EQ(noted->seen.size(), 72u);
  for (auto& [serial, index] : noted->seen) EXPECT_EQ(index, order.at(serial)) << serial;
  EXPECT_EQ(read_manifest(o.out + "/step-6").state.at("consumed_samples"), "72");
}

TEST(ResumeChanged, SaysWhatChangedOnceInTheMetrics) {
  TemporaryDirectory dir;
  auto o = tiny_options();
  o.out = dir / "run", o.save_every = 1;
  train(o);
  o.resume = "auto", o.resume_changed = true, o.steps = 6;
  o.step.global_batch = 32, o.step.seed = 2, o.lr.peak = 0.5;
  std::string said = train(o).said;
  for (std::string change : {"global-batch was 16, now 32 ", "seed was 1, now 2 ", "lr was "})
    EXPECT_TRUE(says(said, "changed since the checkpoint: " + change));
  std::string lines = read_bytes(o.out + "/metrics.jsonl");
  std::string changed = R"(,"changed":"global-batch was 16, now 32; seed was 1, now 2")";
  size_t at = lines.find(changed);
  ASSERT_NE(at, lines.npos) << lines;
  EXPECT_EQ(std::count(lines.begin(), lines.begin() + long(at), '\n'), 3) << "not in step 4";
  EXPECT_EQ(lines.find("changed", at + changed.size()), lines.npos);
  o.resume_changed = false, o.steps = 7;
  train(o);  // reads them again
  EXPECT_NE(saved_settings(read_manifest(o.out + "/step-6").state).at("global-batch"), "16");
}

TEST(ResumeChanged, OtherTensorsOrDataStayRefused) {
  TemporaryDirectory dir;
  auto o = tiny_options();
  o.out = dir / "run";
  int64_t width = 1;
  Task task = task_of();
  task.settings = SettingGroup(model_group).add("width", "N", "of the model", &width);
  train(task, o);
  o.resume = "auto", o.resume_changed = true, o.steps = 5;
  auto refuses = [&](const TrainOptions& changed, const std::string& what, const Task& with) {
    expect_config_error([&] { train(with, changed); }, {what, "--resume-changed does not allow"});
  };
  width = 2;
  refuses(o, "with width 1; this run asks for 2", task);
  width = 1;
  TrainOptions other = o;
  other.step.algorithm = Algorithm::lion;
  refuses(other, "with optimizer", task);
  other = o;
  other.step.average = 0.5;
  refuses(other, "with average 0.0", task);
  Task data = task;
  data.samples = noise(256, 9);
  refuses(o, "other training samples", data);
  o.resume = "";
  expect_config_error([&] { train(task, o); }, {"resume-changed without resume"});
}

/// Tensors as the resumed run of `o` has them before its first step, by name and kind, whole.
std::map<std::string, std::vector<float>> resumed(const TrainOptions& o, double* scale = nullptr) {
  std::map<std::string, std::vector<float>> all;
  std::mutex lock;
  run_worlds(o.step.mesh.size(), [&](World& world) {
    Trainer trainer(task_of(), o, world);
    if (scale && world.rank() == 0) *scale = trainer.update().loss_scale();
    for (auto& p : trainer.update().pieces(Holder::owner)) {
      std::lock_guard guard(lock);
      auto& whole = all[logical_name(p.name, p.kind)];
      whole.resize(size_t(p.part.full.numel()));
      auto held = p.value.storage()->hold(Access::read);
      auto values = p.value.to(f32).contiguous().to_host<float>();
      for_each_overlap({.full = p.part.full}, p.part, [&](const Overlap& run) {
        std::copy_n(values.begin() + run.from, run.count, whole.begin() + run.to);
      });
    }
  });
  return all;
}

std::vector<float> rounded(const std::vector<float>& exact, DType dtype) {
  return from_host(exact, {int64_t(exact.size())}, cpu).to(dtype).to(f32).to_host<float>();
}

struct Change {
  DType from, to;
  MeshShape mesh = {};
  Zero zero = Zero::off;
};

// What is stored most exactly becomes the weight, and the master where there is one.
TEST(ResumeChanged, MastersOfAnotherPrecisionAreNotRounded) {
  const Change changes[] = {{bf16, f32},
                            {f32, bf16},
                            {bf16, f16},
                            {f16, bf16},
                            {f16, f32, {2, 1, 2}, Zero::parameters},
                            {f32, f16, {2, 1, 1}, Zero::optimizer},
                            {bf16, f16, {1, 2, 1}}};
  for (auto& [from, to, mesh, zero] : changes) {
    SCOPED_TRACE(fmt::format("{} to {}", from, to));
    TemporaryDirectory dir;
    auto o = tiny_options();
    o.out = dir / "run", o.step.dtype = from, o.step.average = 0.5, o.step.loss_scale = 0;
    o.step.dynamic_scale.initial = 8;
    train(o);
    auto before = resumed([&] {
      auto same = o;
      same.resume = "auto";
      return same;
    }());
    auto changed = o;
    changed.step.mesh = mesh, changed.step.micro_batch = 4, changed.step.zero = zero;
    changed.step.dtype = to, changed.resume = "auto", changed.step.dynamic_scale.initial = 1024;
    expect_config_error([&] { resumed(changed); }, {"precision", "--resume-changed allows"});
    changed.resume_changed = true;
    double scale = 0;
    auto after = resumed(changed, &scale);
    EXPECT_EQ(scale, to == f16 ? 1024 : 1);
    int weights = 0;
    for (auto& [name, values] : after) {
      std::string weight = name.substr(0, name.find('@'));
      auto& exact = before.at(from == f32 ? weight : weight + "@master");
      bool is_weight = name == weight;
      weights += is_weight;
      if (is_weight || name.ends_with("@master"))
        EXPECT_EQ(values, is_weight ? rounded(exact, to) : exact) << name;
      else EXPECT_EQ(values, before.at(name)) << name;
    }
    EXPECT_GT(weights, 5);
    EXPECT_EQ(after.size(), size_t(weights) * (to == f32 ? 4 : 5)) << "m, v, average, master";
    bool differs = false;  // else nothing was rounded here
    for (auto& [name, values] : before)
      if (!name.ends_with("v")) differs |= values != rounded(values, bf16);
    EXPECT_TRUE(differs);
    changed.steps = 5;
    train(changed);
  }
}

// Checksums keep out accidents, not what somebody wrote on purpose.
TEST(ResumeChanged, AStateThatIsNoneIsDamage) {
  TemporaryDirectory dir;
  auto o = tiny_options();
  o.out = dir / "run";
  train(o);
  o.resume = "auto", o.steps = 4;
  const CheckpointState good = read_manifest(o.out + "/step-3").state;
  auto refused = [&](const std::string& why, Exit code = Exit::data) {
    expect_error([&] { train(o); }, {why}, code);
    change_state(o.out, [&](CheckpointState& state) { state = good; });
  };
  for (const char* key : {"consumed_samples", "updates"})
    for (const char* bad : {"", "-1", "3x", "3 ", "99999999999999999999", "9007199254740993"}) {
      change_state(o.out, [&](CheckpointState& state) { state[key] = bad; });
      refused(fmt::format("{} is `{}`; expected a whole number", key, bad));
    }
  change_state(o.out, [](CheckpointState& state) { state.erase("loss_scaler"); });
  refused("its state has no loss_scaler");
  change_setting(o.out, "seed = ", "seed = \x1b[31m");  // a terminal would obey
  refused("seed ?[31m", Exit::config);
  // As runs before had it.
  change_state(o.out, [](CheckpointState& state) { state.erase("consumed_samples"); });
  train(o);
  EXPECT_EQ(read_manifest(o.out + "/step-4").state.at("consumed_samples"), "64");
}

}  // namespace triax::parallel::resume_changed_test
