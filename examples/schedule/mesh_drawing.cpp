#include "examples/schedule/mesh_drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "examples/schedule/svg.h"

namespace triax::schedule {
namespace {

constexpr const char* grey = "#57606a";
constexpr double left = 100, top = 84, wide = 132, high = 46, gap = 8, pad = 12;
constexpr double between = 56;  // neighbouring cells: room for an arrow

/// Ranks of one colour hold the same weights.
std::string color(int group) {
  constexpr const char* colors[] = {"#cfe4ff", "#ffe3b3", "#cdeed5", "#f6d3e4",
                                    "#e0d8fb", "#c9eef0", "#f3dfcf", "#e3e8b8"};
  return colors[size_t(group) % std::size(colors)];
}

/// Where the tensor-parallel ranks of one replica and stage stand.
Box cell(const parallel::MeshShape& s, int dp, int pp) {
  double height = s.tp * (high + gap) - gap + 2 * pad;
  return {left + pp * (wide + 2 * pad + between), top + dp * (height + 24), wide + 2 * pad, height};
}

void draw_rank(Svg& svg, const parallel::MeshShape& s, const parallel::MeshPoint& at) {
  Box c = cell(s, at.dp, at.pp), box{c.x + pad, c.y + pad + at.tp * (high + gap), wide, high};
  svg.box(box, {.fill = color(at.pp * s.tp + at.tp), .stroke = "#8c959f", .round = 4});
  double middle = box.x + wide / 2;
  svg.text({middle, box.y + 20}, fmt::format("rank {}", rank_of(s, at)),
           {.size = 14, .anchor = "middle", .bold = true});
  svg.text({middle, box.y + 37}, fmt::format("dp {}  pp {}  tp {}", at.dp, at.pp, at.tp),
           {.size = 11, .anchor = "middle", .color = grey});
  double y = box.y + high / 2, from = box.x + wide;
  if (at.pp + 1 < s.pp) svg.arrow({from, y}, {from + 2 * pad + between, y}, "#6e7781");
}

/// What colours, frames and arrows mean, then the groups rank by rank. Returns where it ends.
Point draw_notes(Svg& svg, const parallel::MeshShape& s, double y) {
  auto note = [&](const char* sign, const char* meaning) {
    svg.text({16, y}, sign, {.bold = true});
    svg.text({left, y}, meaning);
    y += 20;
  };
  if (s.dp > 1) note("colour", "dp: the same weights, other data; their gradients are summed");
  if (s.pp > 1) note("arrow", "pp: other layers; activations pass forward, gradients back");
  if (s.tp > 1) note("frame", "tp: the same layers and data, each a slice of every layer");
  y += 8;
  size_t longest = 0;
  std::istringstream lines(describe(s));
  std::string line, axis;
  std::getline(lines, line);  // the shape: the title says it
  for (; lines >> axis && std::getline(lines >> std::ws, line); y += 18) {
    svg.text({16, y}, axis, {.color = grey});
    svg.text({left, y}, line, {.color = grey});
    longest = std::max(longest, line.size());
  }
  return {left + 6.8 * double(longest) + 16, y};
}

}  // namespace

std::string as_svg(const parallel::MeshShape& s) {
  Svg svg;
  svg.text({16, 28}, fmt::format("mesh dp {} x pp {} x tp {}", s.dp, s.pp, s.tp),
           {.size = 16, .bold = true});
  for (int pp = 0; pp < s.pp; ++pp) {
    Box c = cell(s, 0, pp);
    svg.text({c.x + c.width / 2, top - 14}, fmt::format("stage {}", pp), {.anchor = "middle"});
  }
  for (int dp = 0; dp < s.dp; ++dp) {
    Box c = cell(s, dp, 0);
    svg.text({16, c.y + c.height / 2 + 4}, fmt::format("replica {}", dp));
    for (int pp = 0; pp < s.pp && s.tp > 1; ++pp)
      svg.box(cell(s, dp, pp), {.stroke = grey, .round = 8, .dashed = true});
  }
  for (int rank = 0; rank < s.size(); ++rank) draw_rank(svg, s, point_of(s, rank));
  Box last = cell(s, s.dp - 1, s.pp - 1);
  Point end = draw_notes(svg, s, last.y + last.height + 38);
  return svg.str(std::max({last.x + last.width + 16, end.x, 560.}), end.y);
}

}  // namespace triax::schedule
