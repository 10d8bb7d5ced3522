#include "examples/schedule/tensor_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "autograd/backward.h"
#include "autograd/record.h"
#include "examples/minigpt/model.h"
#include "examples/schedule/svg.h"
#include "parallel/comm/threads/thread_comm.h"

namespace triax::schedule {
namespace {

using autograd::Node;
constexpr const char* grey = "#57606a";

/// The graph below `node`, oldest first.
void collect(const std::shared_ptr<Node>& node, std::map<uint64_t, std::shared_ptr<Node>>& all) {
  if (!node || !all.emplace(node->order, node).second) return;
  for (auto& input : node->inputs) collect(input, all);
  if (node->later)
    for (auto& input : node->later->inputs) collect(input, all);
}

/// What `f` asked of `comm`: the names of its collectives.
std::string asked(parallel::Communicator& comm, const std::function<void()>& f) {
  comm.reset_ledger();
  f();
  std::string text = comm.ledger().str();
  return text.substr(0, text.find(':'));
}

/// The collectives of enter, leave and of a product between them: found by calling them.
std::map<std::string, std::pair<std::string, std::string>> collectives(
    parallel::Communicator& comm, const parallel::TensorParallel& tp, const Shape& outside,
    const Shape& inside) {
  std::map<std::string, std::pair<std::string, std::string>> found;
  for (bool in : {true, false}) {
    Tensor x = full(in ? outside : inside, 1, f32, cpu), y;
    require_grad(x);
    auto forward = asked(comm, [&] { y = in ? tp.enter(x) : tp.leave(x); });
    auto back = asked(comm, [&] { backward(y, full(y.shape(), 1, f32, cpu)); });
    found[in ? "enter" : "leave"] = {forward, back};
  }
  if (tp.sequence()) {
    Tensor x = full(outside, 1, f32, cpu);
    require_grad(x);
    Tensor y = tp.through(x, [](const Tensor& all) { return all * 2; });
    auto back = asked(comm, [&] { backward(y, full(y.shape(), 1, f32, cpu)); });
    found["remake"] = {"", back};  // before the backward of enter
  }
  return found;
}

std::string weights_of(const Node& node, nn::Module& model) {
  for (auto* p : model.parameters())
    for (auto* n : {&node, static_cast<const Node*>(node.later.get())}) {
      if (!n) continue;
      for (auto& input : n->inputs)
        if (input && input == p->value.meta()->node)
          return p->local() == p->full
                     ? fmt::format("{} {}", p->name, str(p->full))
                     : fmt::format("{} {} of {}", p->name, str(p->local()), str(p->full));
    }
  return "";
}

BlockTrace trace_rank(parallel::Communicator& world, bool sequence) {
  minigpt::ModelConfig c{.layers = 1, .heads = 4, .width = 32, .context = 8, .vocab = 1};
  parallel::TensorParallel tp(world, {.sequence = sequence});
  minigpt::Block block(c, tp);
  block.materialize(cpu, f32, 1);
  nn::Batch batch{.time = c.context, .first = nn::evaluation};
  Tensor x = full({tp.rows(c.context), c.width}, 1, f32, cpu);
  require_grad(x);
  Tensor y = block(x, batch, minigpt::Recompute::off);

  BlockTrace t{.ranks = world.size(), .sequence = sequence};
  t.input = {.name = "x", .shape = x.shape(), .holds = sequence ? Holds::rows : Holds::alike};
  auto sends = collectives(world, tp, x.shape(), {c.context, c.width});
  std::map<uint64_t, std::shared_ptr<Node>> nodes;
  collect(y.meta()->node, nodes);
  std::map<const Node*, size_t> index{{x.meta()->node.get(), BlockOp::first}};
  bool split = false;
  for (auto& [order, node] : nodes) {
    if (node->is_leaf) continue;
    std::string name = node->name;
    if (name == "leave") split = false;
    BlockOp op{.name = name, .shape = node->shape, .weight = weights_of(*node, block)};
    op.holds = name == "enter" ? Holds::alike
               : split         ? Holds::slice
               : tp.sequence() ? Holds::rows
                               : Holds::alike;
    if (name == "enter") split = true;
    if (sends.count(name)) std::tie(op.forward, op.back) = sends[name];
    for (auto& input : node->inputs)
      if (auto found = index.find(input.get()); found != index.end())
        op.inputs.push_back(found->second);
    index[node.get()] = t.ops.size();
    t.ops.push_back(std::move(op));
  }
  return t;
}

std::string color(const BlockOp& op, int rank) {
  constexpr const char* dark[] = {"#f5c26b", "#8ed29d", "#e39ac3", "#c3b5f2"};
  constexpr const char* light[] = {"#ffe9c4", "#d8f3de", "#f9dfeb", "#e8e2fc"};
  if (op.holds == Holds::alike) return "#cfe4ff";
  return op.holds == Holds::slice ? dark[rank] : light[rank];
}

constexpr double top = 92, step = 34, names = 118, words = 300;
constexpr double per_row = 2.75, per_column = 1.25;  // pixels of an element

double column_of(const BlockTrace& t) {
  int64_t widest = 0;
  for (auto& op : t.ops) widest = std::max(widest, op.shape[1]);
  return per_column * double(widest) + 14;
}

double width_of(const BlockTrace& t) { return names + t.ranks * column_of(t) + words; }

/// From the op whose output skips others, down their left side.
void draw_skip(Svg& svg, Point from, Point to) {
  constexpr double out = 14;
  svg.box({from.x - out, from.y, out, 1}, {.fill = "#6e7781"});
  svg.box({from.x - out, from.y, 1, to.y - from.y}, {.fill = "#6e7781"});
  svg.arrow({to.x - out, to.y}, to, "#6e7781");
}

void draw_op(Svg& svg, const BlockTrace& t, const BlockOp& op, Point at) {
  double column = column_of(t), wide = per_column * double(op.shape[1]),
         high = per_row * double(op.shape[0]);
  bool moves = !op.forward.empty() || !op.back.empty();
  svg.text({at.x, at.y + 4}, op.name, {.bold = moves});
  for (int r = 0; r < t.ranks; ++r)
    svg.box({at.x + names + r * column, at.y - high / 2, wide, high},
            {.fill = color(op, r), .stroke = "#8c959f", .round = 2});
  Point note{at.x + names + t.ranks * column + 4, at.y};
  svg.text({note.x, note.y + (moves || !op.weight.empty() ? -2 : 4)}, str(op.shape), {.size = 11});
  std::string second = op.weight;
  if (moves)
    second = fmt::format("forward: {}; backward: {}", op.forward.empty() ? "-" : op.forward,
                         op.back.empty() ? "-" : op.back);
  svg.text({note.x, note.y + 11}, second, {.size = 11, .color = grey});
}

void draw(Svg& svg, const BlockTrace& t, double left) {
  svg.text({left, 52}, t.sequence ? "with sequence parallelism" : "tensor parallelism",
           {.size = 14, .bold = true});
  for (int r = 0; r < t.ranks; ++r)
    svg.text({left + names + r * column_of(t), 72}, fmt::format("rank {}", r), {.color = grey});
  auto y = [&](size_t op) { return top + step * double(op + 1); };
  draw_op(svg, t, t.input, {left, top});
  for (size_t i = 0; i < t.ops.size(); ++i) {
    draw_op(svg, t, t.ops[i], {left, y(i)});
    for (size_t from : t.ops[i].inputs)
      if (from != i - 1 && !(from == BlockOp::first && i == 0))
        draw_skip(svg, {left - 4, y(from)}, {left - 4, y(i)});
  }
}

}  // namespace

BlockTrace trace_block(int ranks, bool sequence) {
  BlockTrace trace;
  parallel::run_ranks(ranks, [&](parallel::Communicator& world) {
    BlockTrace mine = trace_rank(world, sequence);
    if (world.rank() == 0) trace = std::move(mine);
  });
  return trace;
}

std::string as_text(const BlockTrace& t) {
  std::string text = fmt::format("{} ranks{}\n", t.ranks, t.sequence ? ", sequence parallel" : "");
  for (auto& op : t.ops)
    text += fmt::format("{:<18} {:<9} {:<34} {:<16} {}\n", op.name, str(op.shape), op.weight,
                        op.forward, op.back);
  return text;
}

std::string as_svg(const std::vector<BlockTrace>& traces) {
  Svg svg;
  svg.text(
      {16, 26},
      fmt::format("A transformer block on {} ranks, as its graph records it", traces.front().ranks),
      {.size = 16, .bold = true});
  double left = 36, foot = 0;
  for (auto& t : traces) {
    draw(svg, t, left);
    left += width_of(t);
    foot = std::max(foot, top + step * double(t.ops.size() + 1));
  }
  svg.text({36, foot + 6},
           "box: what a rank has, [token rows, features], to scale; blue: the same on all ranks; "
           "dark: its slice of the features or its part of a sum; light: its own rows",
           {.size = 11, .color = grey});
  return svg.str(left, foot + 24);
}

}  // namespace triax::schedule
