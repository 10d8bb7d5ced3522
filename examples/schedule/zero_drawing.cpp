#include "examples/schedule/zero_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "autograd/backward.h"
#include "autograd/record.h"
#include "examples/schedule/svg.h"
#include "nn/linear.h"
#include "optim/adamw.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::schedule {
namespace {

using parallel::Zero;

constexpr const char* grey = "#57606a";
constexpr int64_t width = 64;  // of a layer: its elements divide among 8 ranks without padding

struct Stack : nn::Module {
  explicit Stack(int count) {
    for (int i = 0; i < count; ++i)
      steps.push_back(&child<nn::Linear>("layer" + std::to_string(i), width, width,
                                         nn::LinearOptions{.bias = false}));
  }
  nn::Layers layers() const {
    nn::Layers all;
    for (auto* step : steps)
      all.push_back({"layer", {step}, [step](const Tensor& x, const nn::Batch& batch) {
                       return (*step)(x.defined() ? x : full({batch.time, width}, 1, f32, cpu));
                     }});
    return all;
  }
  std::vector<nn::Linear*> steps;
};

/// Where each parameter begins when the model is laid out in its order.
std::map<const nn::Parameter*, int64_t> places(Stack& model) {
  std::map<const nn::Parameter*, int64_t> begins;
  int64_t at = 0;
  for (auto* p : model.parameters()) begins[p] = at, at += p->full.numel();
  return begins;
}

ZeroHoldings holdings(Stack& model, const parallel::DataParallel& data) {
  auto begins = places(model);
  ZeroHoldings h;
  for (size_t slot = 0; slot < data.slots().size(); ++slot)
    for (auto& piece : data.slot_pieces(slot)) {
      int64_t begin = begins.at(piece.parameter) + piece.first;
      h.moments.push_back({begin, begin + piece.length});
    }
  // Whole where the bytes are there; else what the optimizer updates.
  for (auto* p : model.parameters()) {
    Held whole{begins[p], begins[p] + p->full.numel()};
    if (p->value.storage()->present()) h.weights.push_back(whole);
    if (grad(p->value).storage()->present()) h.gradients.push_back(whole);
  }
  if (h.weights.empty()) h.weights = h.moments;
  if (h.gradients.empty()) h.gradients = h.moments;
  auto& memory = *memory::counter();
  h.bytes = memory.live(memory::parameters) + memory.live(memory::gradients) +
            memory.live(memory::optimizer);
  return h;
}

ZeroHoldings train(parallel::Communicator& world, Zero zero, const ZeroComparison& c) {
  parallel::Mesh mesh(world, {.dp = world.size()});
  Stack model(c.layers);
  std::vector<nn::Layers> chunks{model.layers()};
  int64_t two_layers = 2 * width * width;
  parallel::DataParallel data(
      model, chunks, mesh, {.zero = zero, .buckets = {.first = two_layers, .other = two_layers}});
  optim::AdamW adam(data.slots(), {});
  mesh.dp().reset_ledger();
  data.begin(c.micros);
  for (int m = 0; m < c.micros; ++m) {
    Tensor x;
    for (auto& layer : chunks[0]) x = layer.run(x, {.time = 1});
    backward(x, full(x.shape(), 1, f32, cpu));
  }
  data.finish();
  adam.step(1e-3);
  data.publish();
  ZeroHoldings h = holdings(model, data);
  h.sent = mesh.dp().ledger().total().bytes;
  return h;
}

std::string sums(const ZeroComparison& c, const ZeroHoldings& h) {
  auto n = double(c.elements);
  return fmt::format("holds {:g} bytes and sends {:g} floats per parameter", double(h.bytes) / n,
                     h.sent / 4 / n);
}

std::string title(const ZeroComparison& c) {
  return fmt::format("{} ranks, f32, AdamW, {} micro-batches a step", c.ranks, c.micros);
}

/// Colours tell layers apart.
std::string color(int layer) {
  constexpr const char* colors[] = {"#8fc1f7", "#f5c26b", "#8ed29d", "#e39ac3"};
  return colors[size_t(layer) % std::size(colors)];
}

void draw_bar(Svg& svg, const ZeroComparison& c, const Box& at, const std::vector<Held>& held) {
  svg.box(at, {.fill = "#eef0f2"});
  double scale = at.width / double(c.elements);
  int64_t layer = c.elements / c.layers;
  for (auto& range : held)
    for (int i = 0; i < c.layers; ++i) {
      int64_t begin = std::max(range.begin, i * layer), end = std::min(range.end, (i + 1) * layer);
      if (begin < end)
        svg.box({at.x + scale * double(begin), at.y, scale * double(end - begin), at.height},
                {.fill = color(i)});
    }
}

}  // namespace

ZeroComparison compare_zero(int ranks) {
  ZeroComparison c{.ranks = ranks};
  c.elements = c.layers * width * width;
  for (int zero = 0; zero < 4; ++zero) {
    auto& stage = c.stages[size_t(zero)];
    stage.resize(size_t(ranks));
    std::mutex lock;
    parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
      ZeroHoldings h = train(world, Zero(zero), c);
      std::lock_guard guard(lock);
      stage[size_t(world.rank())] = std::move(h);
    });
  }
  return c;
}

std::string as_text(const ZeroComparison& c) {
  std::string text = title(c) + "\n\n";
  for (size_t zero = 0; zero < c.stages.size(); ++zero)
    text += fmt::format("ZeRO {}: each rank {}\n", zero, sums(c, c.stages[zero][0]));
  return text;
}

std::string as_svg(const ZeroComparison& c) {
  constexpr double left = 96, top = 84, bar = 12, gap = 3, wide = 128, between = 18, step = 96;
  Svg svg;
  svg.text({16, 28}, "What a rank holds between two steps", {.size = 16, .bold = true});
  svg.text({16, 48}, title(c), {.color = grey});
  for (int r = 0; r < c.ranks; ++r)
    svg.text({left + r * (wide + between) + wide / 2, top - 10}, fmt::format("rank {}", r),
             {.anchor = "middle"});
  double y = top;
  for (size_t zero = 0; zero < c.stages.size(); ++zero, y += step) {
    svg.text({16, y - 10}, fmt::format("ZeRO {}", zero), {.bold = true});
    double row = y;
    for (auto [name, held] : {std::pair{"weights", &ZeroHoldings::weights},
                              {"gradients", &ZeroHoldings::gradients},
                              {"moments m", &ZeroHoldings::moments},
                              {"moments v", &ZeroHoldings::moments}}) {
      svg.text({16, row + 10}, name, {.size = 11, .color = grey});
      for (int r = 0; r < c.ranks; ++r)
        draw_bar(svg, c, {left + r * (wide + between), row, wide, bar},
                 c.stages[zero][size_t(r)].*held);
      row += bar + gap;
    }
    svg.text({left, row + 10}, "each rank " + sums(c, c.stages[zero][0]),
             {.size = 11, .color = grey});
  }
  double right = left + c.ranks * (wide + between);
  for (int i = 0; i < c.layers; ++i) {
    double x = left + i * 84;
    svg.box({x, y - 4, 14, 12}, {.fill = color(i), .round = 2});
    svg.text({x + 20, y + 6}, fmt::format("layer {}", i));
  }
  svg.text({left + c.layers * 84, y + 6}, "grey: on other ranks");
  return svg.str(std::max(right, 560.), y + 24);
}

}  // namespace triax::schedule
