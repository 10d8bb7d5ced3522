#include <algorithm>
#include <cstdio>

#include "triax/core/check.h"
#include "triax/core/gpus.h"
#include "triax/core/io/files.h"
#include "triax/core/profile.h"
#include "triax/parallel/comm/clocks.h"
#include "triax/parallel/comm/together.h"
#include "triax/parallel/settings/terminal.h"
#include "triax/parallel/train/options/options.h"
#include "triax/parallel/train/trainer.h"
#include "triax/parallel/train/watch/chrome_trace.h"

namespace triax::parallel {

namespace {

/// Returns the seconds in which a rank was busy, communicated and waited in the profiled steps:
/// they add up to theirs.
std::vector<double> seconds_of(const std::array<int64_t, activities>& spent) {
  std::vector<double> seconds(3);
  for (size_t a = 0; a < activities; ++a)
    seconds[Activity(a) == Activity::waiting         ? 2
            : Activity(a) == Activity::communication ? 1
                                                     : 0] += double(spent[a]) * 1e-9;
  return seconds;
}

std::string heading(const MeshShape& shape, int rank) {
  return fmt::format("rank {} ({})", rank, place_of(shape, rank));
}

/// Returns a table with a line for each of the first ranks.
std::string table(const MeshShape& shape, const std::vector<double>& seconds) {
  constexpr int most = 16;
  std::string text =
      fmt::format("{:<28} {:>8} {:>14} {:>8}\n", "seconds", "busy", "communicating", "waiting");
  for (int r = 0; r < std::min(most, shape.size()); ++r) {
    const double* of = &seconds[size_t(3 * r)];
    text +=
        fmt::format("{:<28} {:>8.3f} {:>14.3f} {:>8.3f}\n", heading(shape, r), of[0], of[1], of[2]);
  }
  if (shape.size() > most) text += fmt::format("and {} more ranks\n", shape.size() - most);
  return text;
}

std::vector<std::string> json_of_ranks(const MeshShape& shape, const std::vector<double>& seconds) {
  std::vector<std::string> ranks;
  for (int r = 0; r < shape.size(); ++r) {
    const double* of = &seconds[size_t(3 * r)];
    ranks.push_back(traced_rank(shape, r, {of[0], of[1], of[2]}));
  }
  return ranks;
}

/// A rank's profile of the steps of `wanted`.
class ProfiledSteps {
 public:
  ProfiledSteps(StepRange wanted, std::unique_ptr<ProfileClock> clock)
      : wanted_(wanted), profile_(std::move(clock)) {}

  /// Closes step `number`, which is over.
  void after(Trainer& trainer, int64_t number) {
    if (profile()) {
      profile_.close(fmt::format("step {}", number));
      done_ = {done_.first > 0 ? done_.first : number, number};
    }
    if (number == wanted_.last) return end(trainer);
    if (number + 1 == wanted_.first) set_profile(&profile_);
    if (profile()) profile_.open("step", Activity::work);
  }
  void end(Trainer& trainer) {
    if (!profile()) return;
    set_profile(nullptr);
    if (done_.last > 0) write(trainer);
  }

 private:
  void write(Trainer& trainer) {
    profile_.settle();
    const Mesh& mesh = trainer.update().mesh();
    Communicator& ranks = mesh.world();
    int64_t offset = clock_offset(ranks);  // to rank 0's clock
    int64_t begin = profile_.slices().front().begin;
    for (auto& s : profile_.slices()) begin = std::min(begin, s.begin);
    int64_t zero = reduced(ranks, begin + offset, ReduceOp::min);  // Perfetto drops times below 0
    auto events =
        gather_text(ranks, trace_events(profile_, {.rank = ranks.rank(),
                                                   .name = heading(mesh.shape(), ranks.rank()),
                                                   .zero = zero - offset}));
    auto seconds = numbers_of_all(ranks, seconds_of(profile_.spent()));
    on_first(ranks, [&] {
      std::string path = trainer.options().out + "/trace.json";
      const StepOptions& step = trainer.options().step;
      replace_file(path, trace_text({.first = done_.first,
                                     .last = done_.last,
                                     .schedule = step.schedule,
                                     .placement = step.pipeline().placement,
                                     .ranks = json_of_ranks(mesh.shape(), seconds)},
                                    events));
      std::string said = fmt::format("steps {} to {} in {}; open it in ui.perfetto.dev\n{}",
                                     done_.first, done_.last, path, table(mesh.shape(), seconds));
      std::fputs(folded(said).c_str(), stdout);
    });
  }

  StepRange wanted_, done_;
  Profile profile_;
};

}  // namespace

void profile_steps(Trainer& trainer) {
  const TrainOptions& o = trainer.options();
  StepRange steps = parse_step_range(o.profile);
  check_input(!o.out.empty(), Exit::config,
              "profile={} without a run directory; expected options.out", o.profile);
  if (steps.last <= trainer.done()) return;  // as after a restart: describe_start() says so
  steps.first = std::max(steps.first, trainer.done() + 1);
  Device device = trainer.update().mesh().world().device();
  auto steps_profile =
      std::make_shared<ProfiledSteps>(steps, device == cpu ? nullptr : gpu_clock(device.index));
  trainer.on(
      {.start = [=](Trainer& t) { steps_profile->after(t, t.done()); },
       .end = [=](Trainer& t) { steps_profile->end(t); },
       .step = [=](Trainer& t, auto& record) { steps_profile->after(t, record.result.step); },
       .reads_weights = false},
      On::all);
}

}  // namespace triax::parallel
