#include "parallel/program/report/overview.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "parallel/program/report/fact_table.h"
#include "parallel/settings/bytes.h"
#include "parallel/train/report.h"

namespace triax::parallel::report {
namespace {

double sum(const Points& points) {
  double all = 0;
  for (double x : points.values) all += std::isnan(x) ? 0 : x;
  return all;
}

std::string last_loss(const RunFacts& run) {
  const Points& loss = run.column("loss");
  return fmt::format("{:.4f} at step {}", loss.values.back(), loss.steps.back());
}

std::string lowest_validation(const RunFacts& run) {
  const Points& held = run.column("val_loss");
  if (held.size() == 0) return "none";
  auto best = std::ranges::min_element(held.values);
  return fmt::format("{:.4f} at step {}", *best, held.steps[size_t(best - held.values.begin())]);
}

std::string skipped_steps(const RunFacts& run) {
  return run.skipped.size() == 0 ? "none" : std::to_string(run.skipped.size());
}

/// What was measured since the last start: before, the run may have had another mesh and batch.
std::vector<double> latest(const RunFacts& run, const std::string& key) {
  const Points& points = run.column(key);
  std::vector<double> all;
  for (size_t i = 0; i < points.size(); ++i)
    if (points.steps[i] >= number_of(run, "first step") && !std::isnan(points.values[i]))
      all.push_back(points.values[i]);
  return all;
}

/// 0 of nothing. Steps with a validation or a checkpoint take longer.
double median(std::vector<double> all) {
  if (all.empty()) return 0;
  auto middle = all.begin() + std::ssize(all) / 2;
  std::ranges::nth_element(all, middle);
  return *middle;
}

/// Of a rank.
double model_flops(const RunFacts& run) {
  double ranks = number_of(run, "dp") * number_of(run, "pp") * number_of(run, "tp");
  double seconds = median(latest(run, "seconds"));
  return ranks * seconds > 0 ? number_of(run, "model FLOP per step") / seconds / ranks : 0;
}

std::string known(double x) { return x > 0 ? short_number(x) : "?"; }

std::string utilization(const RunFacts& run, const Hardware& h) {
  double peak = h.peak(run.setting("precision") == "fp32" ? f32 : bf16), reached = model_flops(run);
  if (reached == 0) return "?";
  return fmt::format("{:.3g} % of {}", 100 * reached / peak, short_number(peak));
}

}  // namespace

std::string overview(const std::vector<RunFacts>& runs, const Hardware* hardware) {
  FactTable table(runs);
  table.row("loss", last_loss);
  table.row("lowest validation loss", lowest_validation);
  table.row("steps", [](auto& run) {
    return fmt::format("{} of {}", run.column("loss").steps.back(), run.setting("steps"));
  });
  table.row("time of these steps", [](auto& run) { return duration(sum(run.column("seconds"))); });
  table.row(runs[0].unit + " per second, median step",
            [](auto& run) { return known(median(latest(run, run.unit + "_per_second"))); });
  table.row("model FLOP/s of a rank, median step",
            [](auto& run) { return known(model_flops(run)); });
  if (hardware)
    table.row(fmt::format("MFU, of the peak of {}", hardware->name),
              [&](auto& run) { return utilization(run, *hardware); });
  table.row("peak tensor memory of a rank", [](auto& run) {
    auto bytes = latest(run, "memory_bytes");
    return bytes.empty() ? "?" : show_bytes(std::ranges::max(bytes));
  });
  if (std::ranges::any_of(runs, [](auto& run) { return run.settings.contains(foreseen_memory); }))
    table.row("memory foreseen, and the peak of each kind",
              [](auto& run) { return run.setting(foreseen_memory); });
  table.row("skipped steps", skipped_steps);
  table.row("mesh", [](auto& run) {
    return fmt::format("dp {} x pp {} x tp {}", run.setting("dp"), run.setting("pp"),
                       run.setting("tp"));
  });
  table.row("precision, device",
            [](auto& run) { return run.setting("precision") + ", " + run.setting("device"); });
  table.row("parameters", [](auto& run) { return known(number_of(run, "model parameters")); });
  table.row("last job", [](auto& run) { return run.host.empty() ? "?" : run.host; });
  return table.text();
}

}  // namespace triax::parallel::report
