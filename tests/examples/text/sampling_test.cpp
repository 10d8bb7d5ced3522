#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "examples/text/sample.h"
#include "examples/text/tokenizer/utf8.h"
#include "tests/support/expect_error.h"
#include "triax/core/random.h"

namespace triax::text::sampling_test {

using Logits = std::vector<double>;

Logits some_logits(size_t count, uint64_t key) {
  Logits logits(count);
  for (size_t i = 0; i < count; ++i) logits[i] = 2 * random::normal(key, i);
  if (count > 3) logits[3] = logits[1];  // equally likely
  return logits;
}

/// Probabilities that `how` leaves, by definition: everything sorted, summed and divided.
Logits probabilities(const Logits& logits, const Sampling& how) {
  size_t n = logits.size();
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < n; ++i) order.push_back({-logits[i], i});
  std::sort(order.begin(), order.end());
  size_t most = how.top_k > 0 ? std::min(size_t(how.top_k), n) : n;
  Logits p(n);
  auto normalise = [&] {
    double sum = 0;
    for (double x : p) sum += x;
    for (double& x : p) x /= sum;
  };
  for (size_t i = 0; i < most; ++i)
    p[order[i].second] = std::exp(-order[i].first / how.temperature);
  normalise();
  double before = 0;  // of more likely tokens
  for (size_t i = 0; i < most; ++i) {
    double own = p[order[i].second];
    if (how.top_p < 1 && before >= how.top_p) p[order[i].second] = 0;
    before += own;
  }
  normalise();
  return p;
}

/// How often each token is drawn where `uniform` goes through the interval evenly.
Logits shares(const Logits& logits, const Sampling& how) {
  constexpr int draws = 20000;
  Logits share(logits.size());
  for (int i = 0; i < draws; ++i) share[draw(logits, how, (i + 0.5) / draws)] += 1.0 / draws;
  return share;
}

TEST(Sampling, DrawsByTheDefinition) {
  for (double temperature : {0.3, 1., 2.5})
    for (int64_t k : {0, 1, 2, 5, 40, 1000})
      for (double p : {1e-9, 0.1, 0.5, 0.9, 0.999, 1.}) {
        SCOPED_TRACE(testing::Message() << temperature << ' ' << k << ' ' << p);
        Sampling how{temperature, k, p};
        Logits logits = some_logits(40, uint64_t(k) + 1), expected = probabilities(logits, how);
        Logits got = shares(logits, how);
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], expected[i], 2e-4) << i;
          ASSERT_TRUE(expected[i] > 0 || got[i] == 0) << i;
        }
      }
}

TEST(Sampling, MostLikelyTokensShareTheIntervalInOrder) {
  Logits logits = {std::log(0.2), std::log(0.5), std::log(0.2), std::log(0.1)};
  auto at = [&](double uniform) { return draw(logits, {}, uniform); };
  EXPECT_EQ(at(0.49), 1u);
  EXPECT_EQ(at(0.51), 0u);  // before its equal
  EXPECT_EQ(at(0.71), 2u);
  EXPECT_EQ(at(0.91), 3u);
  EXPECT_EQ(at(1 - 1e-16), 3u);
}

TEST(Sampling, TheMostLikelyTokenAlone) {
  Logits logits = some_logits(60, 9);
  auto largest = size_t(std::max_element(logits.begin(), logits.end()) - logits.begin());
  for (Sampling how : {Sampling{.temperature = 0}, Sampling{.top_k = 1}, Sampling{.top_p = 1e-12},
                       Sampling{.temperature = 1e-9}, Sampling{0, 7, 0.5}})
    for (double uniform : {1e-12, 0.3, 1 - 1e-12}) EXPECT_EQ(draw(logits, how, uniform), largest);
  EXPECT_EQ(draw({1, 3, 3, 2}, {.temperature = 0}, 0.5), 1u);  // the first of equal ones
  EXPECT_EQ(draw({7}, {}, 0.5), 0u);
  EXPECT_EQ(draw({-INFINITY, 0}, {}, 1 - 1e-12), 1u);
  EXPECT_EQ(draw({1000, -1000}, {.temperature = 0.01}, 0.5), 0u);
  test::expect_error(
      [] {
        draw({0, NAN}, {}, 0.5);
      },
      {"a logit is not a number"}, Exit::non_finite);
}

/// What a stream prints of these pieces, between bars.
std::string streamed(const std::vector<std::string>& pieces) {
  Utf8Stream stream;
  std::string all;
  for (auto& piece : pieces) all += stream.add(piece) + "|";
  return all + stream.end();
}

TEST(Utf8Stream, HoldsBackWhatIsIncomplete) {
  EXPECT_EQ(streamed({"a", "bc", ""}), "a|bc||");
  EXPECT_EQ(streamed({"\xC3", "\xA9", "x"}), "|é|x|");
  EXPECT_EQ(streamed({"a\xF0\x9F", "\x98", "\x80!"}), "a||\xF0\x9F\x98\x80!|");
  EXPECT_EQ(streamed({"é\xE2\x82", "\xAC\xE2"}), "é|€|\xEF\xBF\xBD");  // never completed
}

TEST(Utf8Stream, ReplacesWhatIsNoUtf8) {
  const std::string bad = "\xEF\xBF\xBD";
  EXPECT_EQ(streamed({"\xFF", "a"}), bad + "|a|");
  EXPECT_EQ(streamed({"\x80z"}), bad + "z|");
  EXPECT_EQ(streamed({"\xE2\x82", "A"}), "|" + bad + bad + "A|");
  EXPECT_EQ(streamed({"\xC3\xC3\xA9"}), bad + "é|");
  EXPECT_EQ(streamed({"\xED\xA0\x80"}), bad + bad + bad + "|");  // a surrogate
}

}  // namespace triax::text::sampling_test
