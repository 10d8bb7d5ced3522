// Compares a run with the checkpoint that CheckpointDirectory::resume chose, and loads that.
#include <filesystem>

#include "triax/core/check.h"
#include "triax/core/io/files.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/runs/initial_weights.h"
#include "triax/parallel/train/runs/run_directory.h"

namespace triax::parallel {
namespace {

constexpr const char* consumed_samples = "consumed_samples";
constexpr const char* instruction_level = "instruction level";  // with --bitwise, which needs it

/// Returns the number of samples consumed until the checkpoint. That of an older run does not have
/// it: such a run never changed its global batch.
int64_t samples_of(const Checkpoint& checkpoint, const std::string& global_batch) {
  auto where = [&](const char* what) {
    return fmt::format("checkpoint {}: {}", checkpoint.path(), what);
  };
  auto known = checkpoint.state().find(consumed_samples);
  if (known != checkpoint.state().end())
    return whole_number(known->second, where(consumed_samples));
  int64_t batch = whole_number(global_batch, where("global-batch")), samples = 0;
  check_input(!__builtin_mul_overflow(checkpoint.step(), batch, &samples), Exit::data,
              "{} {} x global-batch {} overflows", where("step"), checkpoint.step(), batch);
  return samples;
}

/// Loads as Checkpoint::load, into pieces of a run in another precision: parameters and their fp32
/// masters come from the checkpoint's masters, or its parameters.
void load_converted(Checkpoint& checkpoint, const std::vector<Piece>& pieces, Communicator& ranks) {
  std::vector<Piece> weights, others, claimed;
  for (const Piece& p : pieces) {
    bool weight = p.kind.empty() || p.kind == "master";
    (weight ? weights : others).push_back(p);
    claimed.push_back(p);
    if (weight) claimed.push_back({p.name, "master", p.part, {}});
  }
  checkpoint.check_claimed(claimed, ranks);
  checkpoint.load(others, Unclaimed::ignore);
  fill_weights(checkpoint, weights, ranks);
}

/// Returns the cure for a setting that may not change. `changes`: --resume-changed was given.
std::string cure_for(const Setting& s, bool changes, const std::string& checkpoint) {
  if (s.on_resume == OnResume::ask) return "\n  --resume-changed allows the change.";
  std::string why = changes
                        ? "\n  --resume-changed does not allow it: it decides which tensors the "
                          "checkpoint holds, or of which data."
                        : "";
  std::string config = parent_directory(checkpoint) + "/config.toml";
  return why + fmt::format("\n  All settings of that run: --config {}", shell_word(config));
}

}  // namespace

/// Checks settings and data: another model or other data would be another run; other changes are
/// reported. Settings first: data may differ because of one, which says more.
void RunDirectory::check_same_run(const Checkpoint& checkpoint) {
  auto before = saved_settings(checkpoint);
  auto differs = [&](const std::string& name, const std::string& now) {
    auto known = before.find(name);
    return known != before.end() && known->second != now;
  };
  bool changes = contents_.options.resume_changed;
  changes_.clear();
  allowed_.clear();
  auto take = [&](const Setting& s) {
    std::string now = literal(s);
    if (!differs(s.name, now)) return;
    bool asks = s.on_resume == OnResume::ask;
    check_input(
        s.on_resume == OnResume::say || (asks && changes), Exit::config,
        "checkpoint {} was trained with {} {}; this run asks for {}. Resume with --{} {}, or "
        "start a new run directory{}",
        checkpoint.path(), s.name, printable(before[s.name]), now, s.name,
        printable(before[s.name]), cure_for(s, changes, checkpoint.path()));
    changes_.push_back(fmt::format("{} was {}, now {}", s.name, printable(before[s.name]), now));
    if (asks) allowed_.push_back(changes_.back());
  };
  // Changes that nothing allows come first: the cure of others would not help.
  for (auto& s : contents_.settings)
    if (s.on_resume.value_or(OnResume::refuse) == OnResume::refuse) take(s);
  for (auto& s : contents_.settings)
    if (s.on_resume == OnResume::ask || s.on_resume == OnResume::say) take(s);
  for (auto& [name, now] : schedule_content(contents_.options.step))
    if (differs(name, now))
      changes_.push_back(fmt::format("{} were {}, now {}", name, printable(before[name]), now));
  std::string level = backend(cpu).name();
  if (contents_.options.step.bitwise && differs(instruction_level, level))
    changes_.push_back(fmt::format("{} was {}, now {}: from here on bits differ", instruction_level,
                                   printable(before[instruction_level]), level));
  check_same_data(checkpoint);
}

void RunDirectory::check_same_data(const Checkpoint& checkpoint) const {
  auto before = saved_settings(checkpoint);
  std::string cure = path().empty() ? "\n  Expected the same data: put them back where they were."
                                    : " Resume with the same data, or start a new run directory";
  if (contents_.options.resume_changed && !path().empty())
    cure +=
        "\n  --resume-changed does not allow other data: --init starts a run on them from the "
        "checkpoint's weights.";
  for (auto& [name, now] : identity_of(contents_.task)) {
    auto known = before.find(name);
    check_input(known == before.end() || known->second == now, Exit::config,
                "checkpoint {} was trained with other {} ({}); this run has {}.{}",
                checkpoint.path(), name, printable(before[name]), now, cure);
  }
}

Position RunDirectory::resume(Step& step) {
  auto checkpoint = checkpoints_.resume(contents_.options.resume);
  if (!checkpoint) return {};
  check_input(
      checkpoint->state().contains("updates"), Exit::config,
      "checkpoint {} holds weights alone, nothing to resume\n  Start a run from them: --init "
      "{} with another --out.",
      checkpoint->path(), shell_word(checkpoint->path()));
  check_same_run(*checkpoint);
  if (contents_.options.resume == "last-good")
    on_first(ranks_, [&] {
      damaged_ = checkpoints_.steps();
      std::erase_if(damaged_, [&](int64_t saved) { return saved <= checkpoint->step(); });
    });
  int64_t batch = contents_.options.step.global_batch, now_consumed = 0;
  check_input(!__builtin_mul_overflow(checkpoint->step(), batch, &now_consumed), Exit::data,
              "checkpoint {}: step {} x global-batch {} overflows", checkpoint->path(),
              checkpoint->step(), batch);
  auto before = saved_settings(*checkpoint), now = values_of(contents_.settings);
  std::string own = fmt::format("{}/step-{}", path(), checkpoint->step());
  std::error_code other;
  if (std::filesystem::equivalent(checkpoint->path(), own, other)) held_ = checkpoint->step();
  Position at{checkpoint->step(), samples_of(*checkpoint, before["global-batch"])};
  CheckpointState state = checkpoint->state();
  bool converts = before.contains("precision") && before["precision"] != now["precision"];
  if (converts) state["loss_scaler"] = step.state().at("loss_scaler");  // it begins afresh
  step.restore(
      [&](auto& pieces) {
        if (converts) load_converted(*checkpoint, pieces, ranks_);
        else checkpoint->load(pieces);
      },
      state);
  return at;
}

}  // namespace triax::parallel
