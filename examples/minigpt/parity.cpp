#include "examples/minigpt/parity.h"

#include <cmath>
#include <cstdio>

#include "core/check.h"
#include "examples/minigpt/offload.h"

namespace triax::minigpt {
namespace {

/// Steps of a free run drift apart by rounding alone, a little more each step.
ParityBounds free_bounds(const TrainConfig& c) {
  ParityBounds b;
  b.gradient = b.activation = b.weight = 2e-4;
  b.update = 0.1 * c.lr;
  b.noise = c.lr * double(c.steps);
  return b;
}

ParityBounds led_bounds(const TrainConfig& c) { return {.update = 0.02 * c.lr, .noise = c.lr}; }

double relative(double right, double other) { return std::abs(other - right) / std::abs(right); }

void print(const Trace& reference, const Trace& run) {
  fmt::print("step  {:>12} {:>12} {:>9}  {:>12} {:>12} {:>9}\n", "loss: 1 rank", "mesh", "apart",
             "norm: 1 rank", "mesh", "apart");
  for (size_t s = 0; s < reference.steps.size(); ++s) {
    const TraceStep &a = reference.steps[s], &b = run.steps[s];
    fmt::print("{:>4}  {:>12.8f} {:>12.8f} {:>9.1e}  {:>12.8f} {:>12.8f} {:>9.1e}\n", s + 1, a.loss,
               b.loss, relative(a.loss, b.loss), a.norms[0], b.norms[0],
               relative(a.norms[0], b.norms[0]));
  }
}

void print(const Difference& d) {
  std::string when = d.step == 0 ? "before the first step" : fmt::format("at step {}", d.step);
  fmt::print("DIFFERENT {}: {}{}{}\n  {}\n", when, d.what, d.name.empty() ? "" : " of ", d.name,
             d.how_much);
  if (!d.guess.empty()) fmt::print("  perhaps: {}\n", d.guess);
}

}  // namespace

TrainConfig reference_of(TrainConfig c) {
  c.mesh = {.dp = 1, .chunks = 1};
  c.recompute = "off";
  c.micro_batch = c.global_batch;
  c.offload = "off";
  return c;
}

std::optional<Difference> compare_with_reference(const TrainConfig& c, const TextData& text,
                                                 const Trace& reference) {
  Names names = names_of(c.model);
  Trace led = trace(c, text, &reference);
  if (auto d = first_difference(reference, led, names, c.mesh, led_bounds(c))) return d;
  return first_difference(reference, trace(c, text), names, c.mesh, free_bounds(c));
}

Exit parity(TrainConfig c) {
  int64_t ranks = c.mesh.dp * c.mesh.pp * c.mesh.tp;
  resolve(c, ranks, "parity");
  validate(c, ranks);
  check_offload(c);
  std::string file = read_text(c.data);
  Tokenizer tokenizer = Tokenizer::from_text(file, "data: " + c.data);
  c.model.vocab = vocabulary(c.model.vocab, tokenizer);
  TextData text(file, tokenizer, {.context = c.model.context, .name = c.data});

  const MeshConfig& m = c.mesh;
  std::string recompute = c.recompute == "off" ? "" : ", recompute " + c.recompute;
  fmt::print("parity: dp {} x pp {} x tp {}, ZeRO {}, {}{}{} against one rank, {} steps\n", m.dp,
             m.pp, m.tp, m.zero, m.schedule, m.sequence_parallel ? ", sequence parallel" : "",
             recompute, c.steps);
  Names names = names_of(c.model);
  Trace reference = trace(reference_of(c), text), led = trace(c, text, &reference);
  auto difference = first_difference(reference, led, names, m, led_bounds(c));
  print(reference, led);
  if (!difference) {
    fmt::print("led by the reference: equal. Running free:\n");
    Trace run = trace(c, text);
    difference = first_difference(reference, run, names, m, free_bounds(c));
    print(reference, run);
  }
  if (!difference) {
    fmt::print("EQUAL: loss, norm, {} activations, {} gradients and weights of every step\n",
               names.layers.size(), names.parameters.size());
    return Exit::ok;
  }
  print(*difference);
  return Exit::differs;
}

}  // namespace triax::minigpt
