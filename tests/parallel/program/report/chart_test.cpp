// Axes with round ticks, curves that lose no spike, and the SVG that is made of them.
#include "parallel/program/report/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <sstream>

#include "tests/support/expect_error.h"

namespace triax::parallel::report {
namespace {

using Numbers = std::vector<double>;

TEST(ReportAxis, LinearEndsAtRoundTicks) {
  Axis a = make_axis(Scale::linear, 0.13, 0.87);
  EXPECT_EQ(a.ticks.size(), 6u);
  EXPECT_EQ(a.low, 0);
  EXPECT_EQ(a.high, 1);
  EXPECT_EQ(a.label(a.ticks[3]), "0.6");
  EXPECT_EQ(a.at(0.25), 0.25);
  EXPECT_EQ(make_axis(Scale::linear, 0, 2e9).label(5e8), "500M");
}

TEST(ReportAxis, OfOneValueHasRoomAroundIt) {
  for (double x : {0., 3., -7e-5}) {
    Axis a = make_axis(Scale::linear, x, x);
    EXPECT_LT(a.low, x);
    EXPECT_GT(a.high, x);
  }
  EXPECT_EQ(make_axis(Scale::decades, 1, 1).ticks, (Numbers{0.5, 1, 2}));
  Axis steps = step_axis(5, 5);
  EXPECT_EQ(steps.at(5), 0.5);
}

TEST(ReportAxis, OfLogarithms) {
  EXPECT_EQ(make_axis(Scale::decades, 0.3, 4.5).ticks, (Numbers{0.2, 0.5, 1, 2, 5}));
  Axis wide = make_axis(Scale::decades, 2e-3, 900);
  ASSERT_EQ(wide.ticks.size(), 4u) << "every second power";
  EXPECT_DOUBLE_EQ(wide.low, 1e-3);
  EXPECT_GE(wide.high, 1000);
  EXPECT_NEAR(wide.at(std::sqrt(wide.low * wide.high)), 0.5, 1e-12);
  Axis scale = make_axis(Scale::doublings, 65536, 65536);
  EXPECT_EQ(scale.ticks, (Numbers{32768, 65536, 131072}));
  EXPECT_EQ(scale.label(65536), "2¹⁶");
  test::expect_error([] { make_axis(Scale::decades, 0, 1); }, {"above 0"}, Exit::internal);
}

TEST(ReportAxis, OfStepsIsExactAndHasWholeTicks) {
  Axis a = step_axis(1, 1000);
  EXPECT_EQ(a.low, 1);
  EXPECT_EQ(a.high, 1000);
  EXPECT_EQ(a.ticks, (Numbers{200, 400, 600, 800, 1000}));
  EXPECT_EQ(step_axis(1, 3).ticks, (Numbers{1, 2, 3}));
}

/// Of every width, the ticks are some, ascend, and hold the range between them.
TEST(ReportAxis, OfNumbersThatAreEqualButForRounding) {
  for (double low : {0.3, -0.3, 1e300, 1e-300}) {
    Axis a = make_axis(Scale::linear, low, std::nextafter(low, INFINITY));
    EXPECT_LT(a.low, low);
    EXPECT_GT(a.high, low);
    EXPECT_LE(a.ticks.size(), 8u);
  }
}

TEST(ReportAxis, OfAnyRange) {
  std::mt19937 draw(1);
  std::uniform_real_distribution<double> exponent(-12, 12);
  for (int i = 0; i < 2000; ++i) {
    double low = std::pow(10, exponent(draw)), high = low * (1 + std::pow(10, exponent(draw) / 2));
    for (Scale scale : {Scale::linear, Scale::decades, Scale::doublings}) {
      Axis a = make_axis(scale, low, high);
      EXPECT_LE(a.low, low * (1 + 1e-8));
      EXPECT_GE(a.high, high * (1 - 1e-8));
      EXPECT_GE(a.ticks.size(), 2u) << low << " " << high;
      EXPECT_LE(a.ticks.size(), 8u) << low << " " << high;
      EXPECT_TRUE(std::ranges::is_sorted(a.ticks));
    }
  }
}

Points straight(size_t n) {
  Points p;
  for (size_t i = 1; i <= n; ++i) p.add(double(i), 1);
  return p;
}

TEST(ReportSeries, ThinnedKeepsEverySpike) {
  Points all = straight(100000);
  all.values[31415] = 9, all.values[77777] = -4, all.values[99999] = 2;
  Points kept = thinned(all, 1, 100000, 300);
  EXPECT_LE(kept.size(), 602u);
  auto has = [&](double step, double value) {
    for (size_t i = 0; i < kept.size(); ++i)
      if (kept.steps[i] == step && kept.values[i] == value) return true;
    return false;
  };
  EXPECT_TRUE(has(31416, 9));
  EXPECT_TRUE(has(77778, -4));
  EXPECT_TRUE(has(100000, 2)) << "the last";
  EXPECT_TRUE(has(1, 1)) << "the first";
  EXPECT_TRUE(std::ranges::is_sorted(kept.steps));
  EXPECT_EQ(thinned(all, 1, 100000, 100000).size(), 100000u);
}

TEST(ReportSeries, ThinnedPassesOverWhatIsNoNumber) {
  Points all = straight(1000);
  for (size_t i = 0; i < 1000; ++i) all.values[i] = i < 500 ? NAN : double(i);
  Points kept = thinned(all, 1, 1000, 10);
  EXPECT_TRUE(std::isnan(kept.values[0]));
  EXPECT_EQ(*std::max_element(kept.values.end() - 10, kept.values.end()), 999);
  for (size_t i = 0; i < kept.size(); ++i)
    EXPECT_EQ(std::isnan(kept.values[i]), kept.steps[i] <= 500) << kept.steps[i];
}

TEST(ReportSeries, MeansAreOfTheStepsAround) {
  Points all = straight(101);
  for (size_t i = 0; i < 101; ++i) all.values[i] = double(i);
  Points means = running_mean(all, 20, 10);
  EXPECT_EQ(means.steps.front(), 1);
  EXPECT_EQ(means.steps.back(), 101);
  for (size_t i = 1; i + 1 < means.size(); ++i)
    EXPECT_NEAR(means.values[i], means.steps[i] - 1, 1e-9);
  EXPECT_NEAR(means.values.front(), 5, 1e-9) << "0 to 10";
  EXPECT_NEAR(means.values.back(), 95, 1e-9) << "90 to 100";
  all.values[50] = 1e30;  // of which later means know nothing
  all.values[70] = NAN;
  EXPECT_NEAR(running_mean(all, 4, 101).values[60], 60, 1e-9);
  EXPECT_NEAR(running_mean(all, 2, 101).values[70], 70, 1e-9);
}

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST(ReportChart, CarriesWhatItShows) {
  Points p{{1, 2, 3}, {4.25, 1.0625, 2}};
  std::string svg = svg_of({.title = "a < b", .lines = {{0, "run \"x\"", &p}}});
  EXPECT_EQ(count(svg, "data-p=\"1 4.25 2 1.0625 3 2\""), 1u) << svg;
  EXPECT_EQ(count(svg, "data-n=\"run &quot;x&quot;\""), 1u) << svg;
  EXPECT_EQ(count(svg, "aria-label=\"a &lt; b\""), 1u) << svg;
  // From the left end to the right one, on an axis from 1 to 5.
  EXPECT_EQ(count(svg, "d=\"M58.0 50.1L291.0 220.7L524.0 170.5\""), 1u) << svg;
}

TEST(ReportChart, BreaksOffWhereThereIsNoValue) {
  Points p{{1, 2, 3, 4, 5}, {1, 2, NAN, 2, NAN}};
  std::string svg = svg_of({.lines = {{0, "x", &p}}});
  EXPECT_EQ(count(svg, "d=\"M58.0 224.0L174.5 10.0M407.5 10.0h0\""), 1u) << svg;
  EXPECT_EQ(count(svg, "data-p=\"1 1 2 2 4 2\""), 1u) << svg;
  Points none{{1, 2}, {NAN, NAN}};
  EXPECT_EQ(svg_of({.lines = {{0, "x", &none}}}), "");
}

TEST(ReportChart, TakesLogarithmsWhereValuesDiffer) {
  Points p{{1, 2, 3}, {1, 1000, 0}}, q{{1, 2}, {1, 1000}};
  EXPECT_EQ(count(svg_of({.lines = {{0, "x", &q}}}), ">100</text>"), 1u);
  EXPECT_EQ(count(svg_of({.lines = {{0, "x", &p}}}), ">100</text>"), 0u) << "one value is 0";
  std::string svg = svg_of({.scale = Scale::decades, .lines = {{0, "x", &p}}});
  EXPECT_EQ(count(svg, "data-p=\"1 1 2 1000 3 0\""), 1u);
  EXPECT_EQ(count(svg, "L"), 1u) << "0 is nowhere on this axis";
}

TEST(ReportChart, MarksSkippedStepsAndDrawsMeans) {
  Points noise = straight(500), skipped{{3, 400}, {0, 0}};
  std::string svg =
      svg_of({.means = true, .lines = {{1, "x", &noise}}, .skipped = {{1, &skipped}}});
  EXPECT_EQ(count(svg, "class=\"r1 pale\""), 1u);
  EXPECT_EQ(count(svg, "<path class=\"r1\""), 1u);
  EXPECT_EQ(count(svg, "h8z"), 2u);
}

TEST(ReportText, IsFitForAPage) {
  EXPECT_EQ(escaped("<&>\"'\n\x7f é"), "&lt;&amp;&gt;&quot;'?? é");
  EXPECT_EQ(escaped("\xff<a"), "?&lt;a");
}

}  // namespace
}  // namespace triax::parallel::report
