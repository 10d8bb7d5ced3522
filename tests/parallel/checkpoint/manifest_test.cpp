#include "triax/parallel/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <random>

#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/parallel/checkpoint/part.h"

namespace triax::parallel::manifest_test {

const Manifest example = {
    .step = 12,
    .state = {{"key", "value \"quoted\"\n"}},
    .files = {{"rank0.safetensors", 200, 1}, {"rank1.safetensors", 300, 4'000'000'000}},
    .tensors = {
        {"w",
         {f32,
          {4, 6},
          {{0, "w", 7, {.full = {4, 6}, .dim = 1, .begin = 0, .length = 2}},
           {1, "w", 8, {.full = {4, 6}, .dim = 1, .begin = 2, .length = 4, .flat_end = 5}},
           {1, "w#1", 9, {.full = {4, 6}, .dim = 1, .begin = 2, .length = 4, .flat_begin = 5}}}}},
        {"w@m", {bf16, {}, {{0, "w@m", 10, {.full = {}}}}}}}};

// The members of the example's JSON with one text replaced by another, sealed again.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = to_text(example).substr(seal("").size());
  size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from << " in " << text;
  return seal(text.replace(at, from.size(), to));
}

TEST(Manifest, RoundTrip) {
  std::string text = to_text(example);
  Manifest read = parse_manifest(text, "step-12");
  EXPECT_EQ(to_text(read), text);
  EXPECT_EQ(read.state, example.state);
  EXPECT_EQ(read.tensors.at("w").parts[1].part.flat_end, 5);
  EXPECT_EQ(incomplete(read), "");
}

TEST(Manifest, NamesWhatIsWrong) {
  const std::vector<std::array<std::string, 3>> cases = {
      {R"("step":12)", R"("step":-12)", "step of the manifest is not a number"},
      {R"("step":12)", R"("step":1.5)", "step of the manifest is not a number"},
      {R"("step":12)", R"("step":12,"step":12)", "step is given twice"},
      {R"("step":12)", R"("stop":12)", "the manifest has no step"},
      {R"("step":12)", R"("step":[[[[[[[[[[[]]]]]]]]]]])", "nested deeper than 8"},
      {R"("step":12)", R"("step":12,)", "not JSON"},
      {R"("version":1)", R"("version":2)",
       "version 2; this build reads triax checkpoint, version 1"},
      {R"("state":{)", R"("state":{"a":1,)", "a of state of the manifest is not a text"},
      {"rank1.safetensors", "../rank1", "file ../rank1; expected a plain file name"},
      {"rank1.safetensors", "a/b", "expected a plain file name"},
      {"rank1.safetensors", "..", "expected a plain file name"},
      {"rank1.safetensors", "", "expected a plain file name"},
      {"rank1.safetensors", "manifest.json", "expected a plain file name"},
      {"rank1.safetensors", "a\\u0000b", "expected a plain file name"},
      {"rank1.safetensors", "\\u001b[31m", "file ?[31m; expected a plain file name"},
      {"rank1.safetensors", "\\u009b31m", "file ??31m; expected a plain file name"},
      {"rank1.safetensors", "rank0.safetensors", "file rank0.safetensors is given twice"},
      {R"("dtype":"bf16")", R"("dtype":"f8")", "has unknown dtype f8"},
      {R"("shape":[4,6])", R"("shape":[4,9223372036854775807])", "overflows in size"},
      {R"("shape":[4,6])", R"("shape":[0,9223372036854775807])", "overflows in size"},
      {R"("shape":[4,6])", R"("shape":[4,1,1,1,1,1,1,1,6])", "is not an array of at most 8"},
      {R"("shape":[4,6])", R"("shape":[4,5])", "4 from 2 of dim 1 of [4, 5]"},
      {R"("slice":[1,0,2])", R"("slice":[2,0,2])", "has a wrong slice"},
      {R"("slice":[1,0,2])", R"("slice":[1,0])", "has a wrong slice"},
      {R"("range":[5,16])", R"("range":[5,17])", "elements [5, 17) of 16"},
      {R"("tensor":"w#1")", R"("tensor":"w")", "used already"},
      {R"("file":0)", R"("file":2)", "does not exist"},
      {R"("bytes":300)", R"("bytes":60)", "is too small"},
      {R"("bytes":300)", R"("bytes":18446744073709551615)", "is not a number"},
      {R"("crc32c":7)", R"("crc32c":4294967296)", "is not a number from 0 to 4294967295"},
  };
  for (const auto& [from, to, why] : cases) {
    const std::string text = edited(from, to);
    for (const std::string& part : {why, std::string("step-12")})
      test::expect_data_error([&] { parse_manifest(text, "step-12"); }, {part});
  }
  for (const std::string& text : {std::string(), std::string("{}"), to_text(example) + " "})
    test::expect_data_error([&] { parse_manifest(text, "step-12"); },
                            {"manifest.json, checksum differs"});
}

TEST(Manifest, HolesAndOverlapsAreNamed) {
  Manifest hole = parse_manifest(edited(R"("range":[5,16])", R"("range":[6,16])"), "step-12");
  EXPECT_EQ(incomplete(hole), "tensor w [4, 6], element 9 is missing or stored twice");
  Manifest twice = parse_manifest(edited(R"("range":[5,16])", R"("range":[4,16])"), "step-12");
  EXPECT_EQ(incomplete(twice), "tensor w [4, 6], element 8 is missing or stored twice");
}

/// Seconds of CPU time to read a manifest of so many tensors.
double seconds_to_read(int tensors) {
  Manifest many{.files = {{"rank0.safetensors", 1u << 30, 1}}};
  for (int i = 0; i < tensors; ++i) {
    std::string name = fmt::format("w{}", i);
    many.tensors[name] = {f32, {1}, {{0, name, 7, {.full = {1}}}}};
  }
  std::string text = to_text(many);
  std::clock_t begin = std::clock();
  EXPECT_EQ(parse_manifest(text, "step-12").tensors.size(), size_t(tensors));
  return double(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(Manifest, TimeToReadItGrowsWithTensorsNotWithTheirSquare) {
  double few = seconds_to_read(3000);
  EXPECT_LT(seconds_to_read(60000), 100 * few);  // 20 times as many, whose square is 400
}

// Random damage under a right checksum. TRIAX_FUZZ sets the count.
TEST(Manifest, RandomManifestsAreReadOrRefused) {
  const std::string good = to_text(example).substr(seal("").size());
  const std::vector<std::string> words = {
      "{", "}", "[",   "]",    ",",  ":",       "\"",  "0",
      "9", "-", "1e9", "null", "[[", "\\u0000", "../", "99999999999999999999"};
  const char* wish = std::getenv("TRIAX_FUZZ");
  const int64_t count = wish ? std::atoll(wish) : 50'000;
  std::mt19937_64 random(11);
  auto below = [&](size_t n) { return size_t(random() % n); };
  int64_t accepted = 0;
  for (int64_t i = 0; i < count; ++i) {
    std::string text = good;
    for (size_t edits = 1 + below(2); edits > 0; --edits) {
      size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text[at] = char(random());
          break;
        case 1:
          text.erase(at, below(8));
          break;
        case 2:
          text.insert(at, words[below(words.size())]);
          break;
        default:
          while (text[at] < '0' || text[at] > '9') at = (at + 1) % text.size();
          text[at] = char('0' + below(10));
      }
    }
    try {
      Manifest read = parse_manifest(seal(text), "step-12");
      incomplete(read);
      ++accepted;
    } catch (const Error& e) {
      ASSERT_EQ(int(e.code()), int(Exit::data)) << e.what();
    }
  }
  EXPECT_GT(accepted, count / 100);
  EXPECT_LT(accepted, count / 2);
}

// The indices in the full tensor of a part's elements, by walking over every element.
std::vector<int64_t> indices(const Part& p) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < p.full.numel(); ++i) {
    int64_t at = p.dim < 0 ? 0 : i / contiguous_strides(p.full)[p.dim] % p.full[p.dim];
    if (p.dim < 0 || (at >= p.begin && at < p.begin + p.length)) all.push_back(i);
  }
  auto end = p.flat_end < 0 ? all.end() : all.begin() + p.flat_end;
  return {all.begin() + p.flat_begin, end};
}

Part random_part(const Shape& full, std::mt19937& random) {
  auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  Part p{.full = full};
  if (full.rank() > 0 && below(4) > 0) {
    p.dim = int(below(full.rank()));
    p.begin = below(full[p.dim] + 1);
    p.length = below(full[p.dim] - p.begin + 1);
  }
  if (below(2) > 0) {
    int64_t held = slice_shape(p).numel();
    p.flat_begin = below(held + 1);
    p.flat_end = p.flat_begin + below(held - p.flat_begin + 1);
  }
  return p;
}

TEST(Part, OverlapsOfRandomPartsAreExact) {
  std::mt19937 random(3);
  const std::vector<Shape> shapes = {{}, {7}, {4, 6}, {3, 1, 5}, {2, 3, 4, 2}, {2, 0, 3}};
  int shared = 0;
  for (int i = 0; i < 20'000; ++i) {
    const Shape& full = shapes[random() % shapes.size()];
    Part a = random_part(full, random), b = random_part(full, random);
    ASSERT_EQ(problem(a), "");
    auto in_a = indices(a), in_b = indices(b);
    ASSERT_EQ(count(a), int64_t(in_a.size()));
    std::vector<int64_t> found(in_a.size(), -1), expected(in_a.size(), -1);
    for_each_overlap(a, b, [&](const Overlap& o) {
      ASSERT_GT(o.count, 0);
      for (int64_t k = 0; k < o.count; ++k) {
        ASSERT_EQ(found.at(size_t(o.to + k)), -1);
        ASSERT_LT(o.from + k, count(b));
        found[size_t(o.to + k)] = o.from + k;
      }
    });
    for (size_t k = 0; k < in_a.size(); ++k) {
      auto same = std::find(in_b.begin(), in_b.end(), in_a[k]);
      if (same != in_b.end()) expected[k] = same - in_b.begin(), ++shared;
    }
    ASSERT_EQ(found, expected);
  }
  EXPECT_GT(shared, 20'000);
}

TEST(Part, TilingFindsTheFirstFault) {
  std::mt19937 random(4);
  int exact = 0;
  for (int i = 0; i < 20'000; ++i) {
    Shape full = i % 2 ? Shape{3, 4} : Shape{2, 2, 3};
    std::vector<Part> parts;
    Part rows{.full = full, .dim = 0, .begin = 0, .length = 1}, rest = rows;
    rest.begin = 1;
    rest.length = full[0] - 1;
    int64_t cut = int64_t(random() % uint64_t(slice_shape(rest).numel() + 1));
    Part head = rest, tail = rest;
    head.flat_end = cut;
    tail.flat_begin = cut;
    parts = {tail, rows, head};
    if (random() % 2) parts[random() % 3] = random_part(full, random);
    std::vector<int> held(size_t(full.numel()));
    for (const Part& p : parts)
      for (int64_t index : indices(p)) ++held[size_t(index)];
    auto wrong = std::find_if(held.begin(), held.end(), [](int n) { return n != 1; });
    Tiling found = tiling(full, parts);
    ASSERT_EQ(found.exact, wrong == held.end());
    ASSERT_EQ(found.at, wrong - held.begin());
    exact += found.exact;
  }
  EXPECT_GT(exact, 9'000);
}

TEST(Part, ImpossiblePartsAreNamed) {
  Shape full{4, 6};
  EXPECT_NE(problem({.full = full, .dim = 2, .begin = 0, .length = 1}), "");
  EXPECT_NE(problem({.full = full, .dim = -2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = 3, .length = 2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = -1, .length = 2}), "");
  EXPECT_NE(problem({.full = full, .dim = 0, .begin = INT64_MAX, .length = INT64_MAX}), "");
  EXPECT_NE(problem({.full = full, .begin = 1}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 5, .flat_end = 4}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 0, .flat_end = 25}), "");
  EXPECT_NE(problem({.full = full, .flat_begin = 0, .flat_end = -2}), "");
  EXPECT_EQ(problem({.full = full, .flat_begin = 24, .flat_end = 24}), "");
}

}  // namespace triax::parallel::manifest_test
