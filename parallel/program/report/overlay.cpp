#include "parallel/program/report/overlay.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "core/check.h"
#include "core/files.h"
#include "nn/json.h"

namespace triax::parallel::report {
namespace {

std::vector<Actions> lists_run_by(const MeasuredPipeline& m) {
  std::vector<Actions> lists(size_t(m.shape.stages));
  for (auto& a : m.actions) lists[size_t(a.stage)].push_back(a.action);
  return lists;
}

/// Of actions in their order, stage by stage.
std::vector<double> idle(const MeasuredPipeline& m) {
  std::vector<double> idle(size_t(m.shape.stages), m.time);
  for (auto& a : m.actions) idle[size_t(a.stage)] -= a.end - a.begin;
  return idle;
}

std::string show_ms(double seconds) { return fmt::format("{:.2f} ms", seconds * 1e3); }

std::string path_of_trace(const std::string& source) {
  namespace fs = std::filesystem;
  std::error_code error;
  check_input(fs::exists(source, error), Exit::not_found,
              "overlay={}: there is no such run; expected a run directory, or its trace.json",
              printable(source));
  return fs::is_directory(source, error) ? (fs::path(source) / "trace.json").string() : source;
}

}  // namespace

ActionTimes times_of(const MeasuredPipeline& m) {
  ActionTimes times;
  times.actions.resize(size_t(m.shape.stages));
  std::map<Handover, double> sent;
  for (auto& a : m.actions) {
    times.actions[size_t(a.stage)].push_back(a.end - a.begin);
    if (auto to = sent_by(m.shape, a.stage, a.action)) sent[*to] = a.end;
  }
  constexpr double none = -1;
  times.latencies.assign(size_t(m.shape.virtual_stages()), none);
  std::map<std::tuple<int, int, int>, double> posted;  // of stage, link and kind: the next receive
  for (auto& a : m.actions) {
    auto from = received_by(m.shape, a.stage, a.action);
    if (!from || stays(m.shape, *from)) continue;
    double& ready = posted[{a.stage, link_of(m.shape, *from), from->kind}];
    double took = std::max(0., a.begin - std::max(ready, sent[*from]));
    double& least = times.latencies[size_t(std::min(from->from, from->to))];
    least = least == none ? took : std::min(least, took);
    ready = a.begin;
  }
  std::ranges::replace(times.latencies, none, 0.);
  return times;
}

Timeline simulated(const MeasuredPipeline& m, const std::string& name) try {
  int64_t forwards =
      std::ranges::count(m.actions, Action::forward, [](auto& a) { return a.action.kind; });
  check(forwards == int64_t{m.shape.virtual_stages()} * m.shape.micros,
        "{} forwards of {} micro-batches on {} virtual stages", forwards, m.shape.micros,
        m.shape.virtual_stages());
  auto lists = lists_run_by(m);
  auto ran = [&](const PipelineShape&, int stage) { return lists[size_t(stage)]; };
  return make_timeline(name, {ran, m.shape.placement, m.shape.chunks}, m.shape, times_of(m));
} catch (const Error& e) {
  fail(Exit::data, "the actions of step {} are no whole schedule of {} stages: {}", m.step,
       m.shape.stages, e.what());
}

Overlay read_overlay(const std::string& source) {
  std::string path = path_of_trace(source);
  auto trace = read_trace(path);
  const char* cure = "\n  Trace some steps of it: train --pp 2 --profile, or --profile 100-102.";
  check_input(trace.has_value(), Exit::not_found,
              "overlay={}: there is no {}; expected a run with a trace{}", printable(source),
              printable(path), cure);
  check_input(trace->pipeline.has_value(), Exit::data,
              "{}: step {} has no actions of a pipeline; expected those of 2 stages or more{}",
              printable(path), trace->last, cure);
  try {
    return {source, *trace->pipeline, simulated(*trace->pipeline, trace->schedule)};
  } catch (const Error& e) {
    fail(Exit::data, "{}: {}", printable(path), e.what());
  }
}

double longer(const Overlay& o) { return o.measured.time / o.simulated.simulation.time - 1; }

std::string overlay_text(const Overlay& o) {
  const MeasuredPipeline& m = o.measured;
  const Simulation& s = o.simulated.simulation;
  auto idles = idle(m);
  auto waits_most = std::ranges::max_element(idles) - idles.begin();
  std::string text = fmt::format(
      "{}, step {}: {}, {} stages, {} micro-batch{}\n(replica 0, tensor-parallel rank 0)\n\n"
      "pipeline, measured   {:>12}\npipeline, simulated  {:>12}  measured: {:+.1f} %\n"
      "whole step           {:>12}\n\n{:<9}{:>12}{:>12}{:>8}{:>18}\n",
      printable(o.source), m.step, printable(o.simulated.name), m.shape.stages, m.shape.micros,
      m.shape.micros == 1 ? "" : "es", show_ms(m.time), show_ms(s.time), 100 * longer(o),
      show_ms(m.whole), "", "works", "waits", "", "waits, simulated");
  for (size_t i = 0; i < idles.size(); ++i)
    text += fmt::format("stage {:<3}{:>12}{:>12}{:>6.1f} %{:>18}\n", i, show_ms(m.time - idles[i]),
                        show_ms(idles[i]), 100 * idles[i] / m.time, show_ms(s.idle[i]));
  return text + fmt::format("\nstage {} waits most: {} of {}\n", waits_most,
                            show_ms(idles[size_t(waits_most)]), show_ms(m.time));
}

std::string overlay_json(const Overlay& o) {
  Timeline measured = o.simulated;
  measured.simulation.actions = o.measured.actions;
  measured.simulation.time = o.measured.time;
  measured.simulation.idle = idle(o.measured);
  return fmt::format(R"({{"source":{},"step":{},"seconds":{},"measured":{},"simulated":{}}})",
                     nn::quoted(o.source), o.measured.step, o.measured.whole,
                     timeline_json(measured), timeline_json(o.simulated));
}

}  // namespace triax::parallel::report
