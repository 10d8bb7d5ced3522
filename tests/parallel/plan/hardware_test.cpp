// Hardware files, and what a machine measured of itself.
#include "triax/parallel/plan/hardware.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <set>
#include <thread>

#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"
#include "triax/core/check.h"
#include "triax/parallel/plan/bench.h"
#include "triax/parallel/plan/calibrate.h"

namespace triax::parallel::hardware_test {

TEST(Hardware, NamesAndFilesAreTheSame) {
  EXPECT_EQ(hardware_names(),
            (std::vector<std::string>{"a100", "a100-40gb", "b200", "cpu", "h100", "h200",
                                      "h200-two-networks", "l40s", "rtx4090"}));
  test::TemporaryDirectory directory;
  for (auto& name : hardware_names()) {
    Hardware known = hardware_named(name), read;
    test::write_bytes(directory / (name + ".toml"), hardware_file(known));
    read = hardware_named(directory / (name + ".toml"));
    EXPECT_EQ(hardware_file(read), hardware_file(known));
    EXPECT_EQ(read.name, name);
  }
}

TEST(Hardware, RefusesWhatIsMissingOrWrong) {
  test::TemporaryDirectory directory;
  std::string path = directory / "mine.toml", good = hardware_file(hardware_named("h100"));
  auto refused = [&](const std::string& text, const std::vector<std::string>& words) {
    test::write_bytes(path, text);
    test::expect_config_error([&] { (void)hardware_named(path); }, words);
  };
  auto with = [&](const std::string& key, const std::string& value) {
    size_t begin = good.find("\n" + key + " = ") + 1;
    return good.substr(0, begin) + key + " = " + value + good.substr(good.find('\n', begin));
  };
  refused(good.substr(0, good.find("\nlatency")), {"no `latency`", "calibrate"});
  refused(good + "lanes = 3\n", {"mine.toml:", "unknown key `lanes`"});
  refused(with("products", "1.5"), {"mine.toml:", "products", "1.5"});
  refused(with("reserve", "90e9"), {"reserve=90 GB of memory=80 GB"});
  refused(with("reserve", "6"), {"mine.toml: reserve=6 B", "at least 1 MB"});
  refused(with("memory", "1e30"), {"mine.toml:", "memory", "1e+15"});
  for (auto& [key, in_other_units] : std::map<std::string, std::string>{{"fp32", "67"},
                                                                        {"bandwidth", "3350"},
                                                                        {"link", "900"},
                                                                        {"kernel-start", "5"},
                                                                        {"launch", "5000"},
                                                                        {"latency", "100"}})
    refused(with(key, in_other_units), {"mine.toml:", key, in_other_units});
  refused(with("link", "900"), {"expected a number of BYTES/S, 1000000 or more"});
  test::expect_config_error([] { (void)hardware_named("h900"); },
                            {"h900", "a100, a100-40gb, b200, cpu, h100, h200, h200-two-networks"});
}

/// Returns the first key whose values differ, but for those of `differ`.
std::string differs(const Hardware& a, const Hardware& b, const std::set<std::string>& differ) {
  Hardware x = a, y = b;
  Settings keys = hardware_settings(x), others = hardware_settings(y);
  for (size_t i = 0; i < keys.size(); ++i)
    if (!differ.contains(keys[i].name) && literal(keys[i]) != literal(others[i]))
      return keys[i].name;
  return "";
}

// Versions of a card say the same of what they share, so that a better measurement reaches both.
TEST(Hardware, VersionsOfACardShareItsParts) {
  EXPECT_EQ(differs(hardware_named("a100"), hardware_named("a100-40gb"),
                    {"memory", "reserve", "bandwidth", "network"}),
            "");
  EXPECT_EQ(differs(hardware_named("h200"), hardware_named("h200-two-networks"), {"network"}), "");
  EXPECT_EQ(differs(hardware_named("h100"), hardware_named("h200"), {}), "memory");
}

// Rings leave a node through the cards of all members that they have there.
TEST(Hardware, RingsShareTheCardsOfANode) {
  Hardware h = hardware_named("a100");
  h.latency = 0;
  double bytes = 1e9;
  auto ring = [&](int64_t ranks, int64_t stride) {
    double part = double(ranks - 1) / double(ranks);
    return h.seconds(Ledger::Line{1, 2 * part * bytes}, ranks, stride);
  };
  double card = h.network_part * h.network / 8;
  EXPECT_NEAR(ring(8, 1), 2 * 7. / 8 * bytes / (h.link_part * h.link), 1e-9);
  EXPECT_NEAR(ring(16, 1), 2 * 1. / 2 * bytes / (8 * card), 1e-9) << "two nodes, all eight cards";
  EXPECT_NEAR(ring(16, 8), 2 * 15. / 16 * bytes / card, 1e-9) << "one card each";
  EXPECT_NEAR(ring(12, 1), 2 * 1. / 2 * bytes / (4 * card), 1e-9)
      << "eight of one, four of another";
  EXPECT_EQ(ring(1, 1), 0);
}

TEST(Calibrate, FindsTheRatesBehindTimes) {
  std::vector<std::vector<double>> terms;
  std::vector<double> times;
  for (int i = 1; i <= 20; ++i) {
    terms.push_back({double(i * i), 50. / i, 1});
    times.push_back(3 * terms.back()[0] + 0.5 * terms.back()[1] + 7);
  }
  auto found = fit(terms, times);
  EXPECT_NEAR(found[0], 3, 1e-6);
  EXPECT_NEAR(found[1], 0.5, 1e-4);
  EXPECT_NEAR(found[2], 7, 1e-3);
  auto falling = fit({{1, 2}, {1, 3}, {1, 4}}, {3, 2, 1});
  EXPECT_GE(*std::ranges::min_element(falling), 0);
}

// Or the next run of a piece of work would find its tensors in the caches.
TEST(Bench, WorkOnACpuTakesTurns) {
  run_worlds(2, [](World& world) {
    Bench bench(world, {.round = 0.01, .rounds = 3});
    std::vector<int> ran;
    for (int i : {0, 1}) bench.add([&ran, i] { ran.push_back(i); });
    ran.clear();
    EXPECT_EQ(bench.seconds().size(), 2u);
    EXPECT_GT(ran.size(), 6u);
    for (size_t i = 0; i < ran.size(); ++i) ASSERT_EQ(ran[i], int(i % 2)) << i;
  });
}

TEST(Calibrate, SeesThatMeasurementsScatter) {
  run_worlds(1, [](World& world) {
    Bench bench(world, {.round = 0.001, .rounds = 9});
    int runs = 0;
    bench.add([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(++runs % 2 == 0 ? 500 : 3000));
    });
    test::expect_error([&] { (void)bench.spread(); }, {"before seconds"});
    (void)bench.seconds();
    EXPECT_GT(bench.spread(), 0.5);
  });
}

TEST(Calibrate, MeasuresRatesOfTheseRanks) {
  run_worlds(2, [](World& world) {
    auto [h, spread] = calibrate(world, {.round = 0.0005, .rounds = 3, .less = 16});
    EXPECT_TRUE(spread >= 0 && std::isfinite(spread)) << spread;
    EXPECT_TRUE(h.on_host());
    EXPECT_EQ(h.per_node, 2);
    EXPECT_GT(h.fp32, 1e8) << "FLOP/s";
    EXPECT_LT(h.fp32, 1e14);
    EXPECT_GT(h.link, 1e6);
    Hardware again = hardware_named("cpu");
    EXPECT_NE(h.fp32, again.fp32) << "measured, not read";
  });
}

}  // namespace triax::parallel::hardware_test
