#include "triax/nn/key_value_cache.h"

#include "tests/support/expect_error.h"
#include "tests/support/tensors.h"
#include "triax/nn/rotary.h"

namespace triax::nn {
namespace {

using namespace test;

constexpr int64_t tokens = 9, kv_heads = 2, group = 3, dim = 4;
struct Layer : Module {};

/// Queries, keys and values of so many tokens.
struct Projection : Qkv {
  explicit Projection(uint64_t key = 1)
      : Qkv{filled({tokens, kv_heads, group, dim}, key),
            filled({tokens, kv_heads, 1, dim}, key + 1),
            filled({tokens, kv_heads, 1, dim}, key + 2)} {}
  Qkv part(int64_t begin, int64_t n) const {
    return {narrow(q, 0, begin, n), narrow(k, 0, begin, n), narrow(v, 0, begin, n)};
  }
};

// Two layers, whose entries are apart.
TEST(KeyValueCache, GivesWhatAttentionOverAllTokensGives) {
  NoGrad guard;
  Layer first, second;
  Projection all;
  for (int64_t window : {0, 1, 3, 20}) {
    Tensor expected = attention(all.q, all.k, all.v, {.time = tokens, .window = window});
    for (std::vector<int64_t> parts :
         {std::vector<int64_t>{9}, {1, 1, 1, 1, 1, 1, 1, 1, 1}, {4, 5}, {3, 1, 1, 4}}) {
      KeyValueCache cache(tokens + 2);
      for (int64_t n : parts) {
        int64_t at = cache.tokens();
        Qkv p = all.part(at, n);
        Tensor y = cache.attend(first, p, window);
        expect_near(y, values(expected.narrow(0, at, n)), 1e-14);
        cache.attend(second, {p.q, p.v, p.k});
        cache.advance(n);
      }
      EXPECT_EQ(cache.tokens(), tokens);
    }
  }
}

TEST(KeyValueCache, ForgetsWhatIsTruncated) {
  NoGrad guard;
  Layer layer;
  Projection all, other(4);
  KeyValueCache cache(tokens);
  auto read = [&](const Qkv& p) {
    Tensor y = cache.attend(layer, p);
    cache.advance(p.q.size(0));
    return y;
  };
  read(all.part(0, 4)), read(other.part(4, 3));
  cache.truncate(4);
  Tensor y = read(all.part(4, 5)), expected = attention(all.q, all.k, all.v, {.time = tokens});
  expect_near(y, values(expected.narrow(0, 4, 5)), 1e-14);
}

TEST(KeyValueCache, RefusesWhatDoesNotFit) {
  NoGrad guard;
  Layer layer;
  Projection all;
  expect_error([] { KeyValueCache none(0); }, {"capacity 0", "at least 1"});
  KeyValueCache cache(tokens - 1);
  expect_error([&] { cache.attend(layer, all); },
               {"key-value cache: 9 tokens after 0", "at most 8"});
  cache.advance(5);
  expect_error([&] { cache.advance(4); }, {"advanced by 4 after 5", "at most 8"});
  expect_error([&] { cache.truncate(6); }, {"truncated to 6", "0 to 5"});
}

TEST(RotaryEmbedding, BeginsAtAnyPosition) {
  NoGrad guard;
  RotaryEmbedding turn(tokens, dim);
  Tensor x = filled({tokens, kv_heads, dim}, 1), all = turn(x, tokens);
  for (int64_t first : {0, 1, 5})
    expect_near(turn(narrow(x, 0, first, 3), 3, first), values(narrow(all, 0, first, 3)), 0);
}

}  // namespace
}  // namespace triax::nn
