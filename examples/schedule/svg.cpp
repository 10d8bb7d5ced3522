#include "examples/schedule/svg.h"

#include <fmt/format.h>

#include <cmath>

namespace triax::schedule {
namespace {

constexpr const char* sans = "system-ui, 'Segoe UI', Helvetica, Arial, sans-serif";

std::string escaped(const std::string& text) {
  std::string safe;
  for (char c : text) {
    if (c == '<') safe += "&lt;";
    else if (c == '&') safe += "&amp;";
    else safe += c;
  }
  return safe;
}

}  // namespace

std::string blend(const std::string& from, const std::string& to, double share) {
  std::string color = "#";
  for (size_t at = 1; at < 7; at += 2) {
    int a = std::stoi(from.substr(at, 2), nullptr, 16),
        b = std::stoi(to.substr(at, 2), nullptr, 16);
    color += fmt::format("{:02x}", int(std::lround(a + share * (b - a))));
  }
  return color;
}

void Svg::box(const Box& at, const Paint& paint) {
  shapes_ += fmt::format("<rect x=\"{:g}\" y=\"{:g}\" width=\"{:g}\" height=\"{:g}\" fill=\"{}\"",
                         at.x, at.y, at.width, at.height, paint.fill);
  if (paint.round > 0) shapes_ += fmt::format(" rx=\"{:g}\"", paint.round);
  if (paint.stroke != "none") shapes_ += fmt::format(" stroke=\"{}\"", paint.stroke);
  if (paint.dashed) shapes_ += " stroke-dasharray=\"5 4\"";
  shapes_ += "/>\n";
}

void Svg::arrow(Point from, Point to, const std::string& color) {
  constexpr double head = 7, half = 3.5;
  double length = std::hypot(to.x - from.x, to.y - from.y);
  Point along{(to.x - from.x) / length, (to.y - from.y) / length};
  Point neck{to.x - head * along.x, to.y - head * along.y};
  shapes_ += fmt::format(
      "<path d=\"M{:g} {:g}L{:g} {:g}\" stroke=\"{}\" stroke-width=\"1.5\"/>\n"
      "<path d=\"M{:g} {:g}L{:g} {:g}L{:g} {:g}z\" fill=\"{}\"/>\n",
      from.x, from.y, neck.x, neck.y, color, to.x, to.y, neck.x - half * along.y,
      neck.y + half * along.x, neck.x + half * along.y, neck.y - half * along.x, color);
}

void Svg::text(Point at, const std::string& text, const Font& font) {
  shapes_ += fmt::format("<text x=\"{:g}\" y=\"{:g}\" font-size=\"{:g}\"", at.x, at.y, font.size);
  if (font.anchor != "start") shapes_ += fmt::format(" text-anchor=\"{}\"", font.anchor);
  if (font.bold) shapes_ += " font-weight=\"600\"";
  shapes_ += fmt::format(" fill=\"{}\">{}</text>\n", font.color, escaped(text));
}

std::string Svg::str(double width, double height) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:g}\" height=\"{1:g}\" "
      "viewBox=\"0 0 {0:g} {1:g}\" font-family=\"{2}\">\n"
      "<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{3}</svg>\n",
      width, height, sans, shapes_);
}

}  // namespace triax::schedule
