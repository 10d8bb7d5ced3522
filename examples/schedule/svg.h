#pragma once
#include <string>

namespace triax::schedule {

struct Point {
  double x = 0, y = 0;
};

struct Box {
  double x = 0, y = 0, width = 0, height = 0;
};

struct Paint {
  std::string fill = "none", stroke = "none";
  double round = 0;  ///< radius of the corners
  bool dashed = false;
};

/// `middle` and `end`: where the given point stands in the line of text.
struct Font {
  double size = 12;
  std::string anchor = "start", color = "#24292f";
  bool bold = false;
};

/// A colour between two, both written `#rrggbb`: `from` at 0, `to` at 1.
std::string blend(const std::string& from, const std::string& to, double share);

/// A drawing on white paper: what is added later lies above. Pixels, y downwards.
class Svg {
 public:
  void box(const Box& at, const Paint& paint);
  /// A straight arrow.
  void arrow(Point from, Point to, const std::string& color);
  /// One line of text, its foot at `at`.
  void text(Point at, const std::string& text, const Font& font = {});
  /// The file.
  std::string str(double width, double height) const;

 private:
  std::string shapes_;
};

}  // namespace triax::schedule
