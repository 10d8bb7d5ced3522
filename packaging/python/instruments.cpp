#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <optional>

#include "examples/llama/program.h"
#include "examples/minigpt/config.h"
#include "packaging/python/module.h"
#include "triax/core/check.h"
#include "triax/core/version.h"
#include "triax/parallel/parity/parity.h"
#include "triax/parallel/pipeline/timeline.h"
#include "triax/parallel/plan/plan.h"
#include "triax/parallel/program/verbs.h"

namespace nb = nanobind;

namespace triax::python {
namespace {

using Words = std::vector<std::string>;
using VerbOf = std::function<parallel::Verb(parallel::ProgramOptions&)>;

/// Runs one verb of a program with the words of a command line, the verb's name among them.
void call(const std::string& program, const VerbOf& verb_of, const Words& words) {
  bool llama = program == "triax-llama";
  check_input(llama || program == "minigpt", Exit::usage,
              "program {}; expected minigpt or triax-llama", program);
  minigpt::Config config;
  text::SampleOptions sample;
  LlamaOptions options;
  parallel::ProgramOptions p =
      llama ? program_options(options) : minigpt::program_options(config, sample);
  parallel::CommandLine line{p.name, version(), {verb_of(p)}};
  parallel::Request request = parse(line, words, 100);
  Words all{p.name};
  all.insert(all.end(), words.begin(), words.end());
  auto pointers = transformed(all, [](std::string& word) { return word.data(); });
  int argc = int(pointers.size());
  char** argv = pointers.data();
  (void)request.verb->run({request, line, argc, argv});
}

/// Returns the JSON of every plan, fastest first, as `plan --json` prints it.
Words plan(const std::string& program, const Words& words) {
  Words found;
  auto use = [&](const parallel::Task& task, const parallel::PlanOptions& o) {
    found = plans_json(task, plans(task, o));
  };
  call(
      program, [&](auto& p) { return plan_verb(p, "plan", use); }, words);
  return found;
}

/// Returns the JSON of a schedule's timeline; `times`: F, B, W, C of `schedule --times`.
std::string schedule(const std::string& name, int pp, int micros, int chunks,
                     const std::array<double, 4>& times) {
  check_input(pp >= 1 && pp <= 1024 && micros >= 1 && micros <= 4096 && chunks <= 64, Exit::config,
              "schedule: pp {}, micros {}, chunks {}; expected 1 to 1024, 1 to 4096, at most 64",
              pp, micros, chunks);
  parallel::Schedule found = parallel::schedule_named(name);
  parallel::PipelineShape shape{pp, chunks > 0 ? chunks : found.chunks, micros, found.placement};
  parallel::Durations per_stage{times[0], times[1], times[2], times[3]};
  auto all = make_timeline(name, found, shape, parallel::equal_stages(shape, per_stage));
  return parallel::timeline_json(all);
}

/// The result of a comparison.
struct Compared {
  /// Loss of one rank and of the mesh, norm of one rank and of the mesh, by step, as they last ran.
  std::vector<std::array<double, 4>> steps;
  std::optional<parallel::Difference> difference;
};

Compared parity(const std::string& program, const Words& words) {
  Compared c;
  auto see = [&](const parallel::Trace& one, const parallel::Trace& mesh, bool) {
    c.steps.clear();
    for (size_t s = 0; s < one.steps.size(); ++s)
      c.steps.push_back(
          {one.steps[s].loss, mesh.steps[s].loss, one.steps[s].norms[0], mesh.steps[s].norms[0]});
  };
  auto use = [&](const parallel::Task& task, const parallel::TrainOptions& o,
                 parallel::OneRank takes) {
    c.difference = find_difference(task, o, takes, see);
    return c.difference ? Exit::differs : Exit::ok;
  };
  call(
      program, [&](auto& p) { return parity_verb(p, "parity", use); }, words);
  return c;
}

}  // namespace

void add_instruments(nb::module_& m) {
  using parallel::Difference;
  nb::call_guard<nb::gil_scoped_release> unlocked;
  nb::class_<Difference>(m, "Difference")
      .def_ro("step", &Difference::step)
      .def_ro("what", &Difference::what)
      .def_ro("name", &Difference::name)
      .def_ro("how_much", &Difference::how_much)
      .def_ro("guess", &Difference::guess);
  nb::class_<Compared>(m, "Compared")
      .def_ro("steps", &Compared::steps)
      .def_ro("difference", &Compared::difference);
  m.def("plan", plan, unlocked);
  m.def("schedule", schedule, unlocked);
  m.def("parity", parity, unlocked);
}

}  // namespace triax::python
