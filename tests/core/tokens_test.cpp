#include "tests/core/kernels.h"

namespace triax::test {
namespace {

class Tokens : public Kernels {};
INSTANTIATE_TEST_SUITE_P(Cpu, Tokens, every_level_and_dtype(), name_of);

Tensor indices(std::vector<int64_t> values, const Shape& shape, DType dtype) {
  return from_host(values, shape, cpu).to(dtype);
}

// Numbers below `bound`, many of them equal.
Tensor some_indices(const Shape& shape, int64_t bound, DType dtype) {
  std::vector<int64_t> v(size_t(shape.numel()));
  for (size_t i = 0; i < v.size(); ++i) v[i] = int64_t(i * i + i / 3) % bound;
  return indices(v, shape, dtype);
}

TEST_P(Tokens, EmbeddingOfASlice) {
  const int64_t first = 10, rows = 20, width = 33;
  Tensor table = randn({rows, width}, dtype, 1);
  for (DType index : {i32, i64}) {
    Tensor ids = some_indices({500}, 40, index);
    Tensor y = empty({500, width}, dtype, cpu);
    b.embedding(ids, table, first, y);
    std::vector<double> id = doubles(ids), t = doubles(table), expected(500 * width);
    for (size_t i = 0; i < expected.size(); ++i) {
      int64_t r = int64_t(id[i / width]) - first;
      expected[i] = r >= 0 && r < rows ? t[size_t(r * width) + i % width] : 0;
    }
    expect_near(y, expected, 0);
  }
}

TEST_P(Tokens, EmbeddingBackwardSumsEachRow) {
  const int64_t first = 10, rows = 20;
  for (int64_t tokens : {0, 1, 500})
    for (int64_t width : {1, 33, 600})
      for (DType out : {dtype, sums})
        for (Write write : {Write::set, Write::add}) {
          Tensor ids = some_indices({tokens}, 40, tokens == 1 ? i64 : i32);
          Tensor dy = randn({tokens, width}, dtype, 2), before = randn({rows, width}, out, 3);
          Tensors d = on_any_threads([&] {
            Tensor t = clone(before);
            b.embedding_backward(ids, dy, first, t, write);
            return Tensors{t};
          });
          std::vector<double> expected = doubles(before), id = doubles(ids), g = doubles(dy);
          if (write == Write::set) std::fill(expected.begin(), expected.end(), 0);
          for (size_t i = 0; i < g.size(); ++i) {
            int64_t r = int64_t(id[i / size_t(width)]) - first;
            if (r >= 0 && r < rows) expected[size_t(r * width) + i % size_t(width)] += g[i];
          }
          expect_near(d[0], expected, tolerance(out) + 4 * tolerance(sums));
        }
}

// Visits (index of y, index of x) of an index_select along dim 1 of [a, n, c].
template <class F> void each_pick(const Tensor& y, const Tensor& index, int64_t n, F f) {
  std::vector<double> at = doubles(index);
  int64_t count = index.numel(), c = y.size(2);
  for (int64_t i = 0; i < y.numel(); ++i) {
    int64_t a = i / c / count, k = i / c % count;
    f(size_t(i), size_t((a * n + int64_t(at[size_t(k)])) * c + i % c));
  }
}

TEST_P(Tokens, IndexSelectAndAddOfAnyStrides) {
  for (DType t : {i32, i64}) {
    Tensor index = some_indices({31}, 9, t);
    Tensor x = randn({3, 5, 9}, dtype, 1).transpose(1, 2), y = empty({31, 3, 5}, dtype, cpu);
    Tensor picked = y.transpose(0, 1);  // [3, 31, 5]
    b.index_select(x, 1, index, picked);
    std::vector<double> from = doubles(x), expected(size_t(y.numel()));
    each_pick(picked, index, 9, [&](size_t i, size_t j) { expected[i] = from[j]; });
    expect_near(picked, expected, 0);

    Tensor dx = randn({5, 9, 3}, sums, 2), into = dx.transpose(0, 2);  // [3, 9, 5]
    std::vector<double> sum = doubles(into);
    b.index_add(picked, 1, index, into);
    each_pick(picked, index, 9, [&](size_t i, size_t j) { sum[j] += expected[i]; });
    expect_near(into, sum, 8 * tolerance(sums));
  }
}

TEST_P(Tokens, IndexSelectOfOuterAndInnerDims) {
  Tensor x = randn({40, 33}, dtype, 1), index = indices({39, 0, 39, 7}, {4}, i64);
  Tensor rows = empty({4, 33}, dtype, cpu), columns = empty({33, 4}, dtype, cpu);
  b.index_select(x, 0, index, rows);
  EXPECT_TRUE(same_bits(clone(rows.narrow(0, 2, 1)), clone(x.narrow(0, 39, 1))));
  b.index_select(clone(x.transpose(0, 1)), -1, index, columns);
  EXPECT_TRUE(same_bits(clone(columns.transpose(0, 1)), rows));
  Tensor ids = some_indices({40}, 100, i64), some = empty({4}, i64, cpu);
  b.index_select(ids, 0, index, some);
  EXPECT_EQ(some.to_host<int64_t>()[3], ids.to_host<int64_t>()[7]);
}

TEST_P(Tokens, IndexAddIsInOrderOnAnyThreads) {
  Tensor dy = randn({500, 700}, dtype, 1), index = some_indices({500}, 6, i32);
  Tensors dx = on_any_threads([&] {
    Tensor t = zeros({6, 700}, sums, cpu);
    b.index_add(dy, 0, index, t);
    return Tensors{t};
  });
  std::vector<double> expected(6 * 700), g = doubles(dy), at = doubles(index);
  for (size_t i = 0; i < g.size(); ++i) expected[size_t(at[i / 700]) * 700 + i % 700] += g[i];
  expect_near(dx[0], expected, 10 * tolerance(sums));
}

TEST_P(Tokens, GatherAndScatterAdd) {
  for (bool transposed : {false, true}) {
    Tensor x = transposed ? randn({9, 50}, dtype, 1).transpose(0, 1) : randn({50, 9}, dtype, 1);
    Tensor index = some_indices({50, 4}, 9, transposed ? i32 : i64), y = empty({50, 4}, dtype, cpu);
    b.gather(x, index, y);
    Tensor dx = zeros({50, 9}, dtype, cpu);
    b.scatter_add(y, index, dx);
    std::vector<double> from = doubles(x), at = doubles(index), picked(200), sum(450);
    for (size_t i = 0; i < 200; ++i) {
      size_t j = i / 4 * 9 + size_t(at[i]);
      picked[i] = from[j];
      sum[j] += picked[i];
    }
    expect_near(y, picked, 0);
    expect_near(dx, sum, within);
  }
}

// Stats of slices of the vocabulary, put together as a caller does.
std::vector<double> combined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all = parts[0];
  for (size_t p = 1; p < parts.size(); ++p)
    for (size_t r = 0; r < all.size(); r += 4) {
      double m = std::max(all[r], parts[p][r]);
      all[r + 1] = all[r + 1] * std::exp(all[r] - m) + parts[p][r + 1] * std::exp(parts[p][r] - m);
      all[r] = m;
      all[r + 2] += parts[p][r + 2];
      all[r + 3] += parts[p][r + 3];
    }
  return all;
}

struct Entropy {
  std::vector<double> losses, dlogits;
};

Entropy naive(const Tensor& logits, const Tensor& targets, int64_t vocab, double smoothing) {
  std::vector<double> x = doubles(logits), t = doubles(targets);
  size_t n = size_t(logits.size(1));
  Entropy e{{}, std::vector<double>(x.size())};
  for (size_t r = 0; r < t.size(); ++r) {
    double sum = 0, loss = 0;
    for (size_t c = 0; c < size_t(vocab); ++c) sum += std::exp(x[r * n + c]);
    for (size_t c = 0; t[r] != -1 && c < size_t(vocab); ++c) {
      double p = std::exp(x[r * n + c]) / sum;
      double q = (double(c) == t[r] ? 1 - smoothing : 0) + smoothing / double(vocab);
      loss -= q * std::log(p);
      e.dlogits[r * n + c] = 0.5 * (p - q);
    }
    e.losses.push_back(loss);
  }
  return e;
}

TEST_P(Tokens, CrossEntropyOverSlicesOfTheVocabulary) {
  const int64_t rows = 70, columns = 40, vocab = 37;  // 3 padding columns
  for (double smoothing : {0., 0.1})
    for (int64_t slices : {1, 2, 4})
      for (DType index : {i32, i64}) {
        Tensor logits = randn({rows, columns}, dtype, 1, 2),
               targets = some_indices({rows}, vocab, i64);
        targets.data<int64_t>()[3] = targets.data<int64_t>()[9] = -1;
        targets = targets.to(index);
        std::vector<std::vector<double>> parts;
        std::vector<CrossEntropy> pieces;
        int64_t width = columns / slices;
        for (int64_t first = 0; first < columns; first += width) {
          CrossEntropy c{
              clone(logits.narrow(1, first, width)), targets, first, vocab, -1, smoothing};
          Tensors stats = on_any_threads([&] {
            Tensor s = empty({rows, 4}, sums, cpu);
            b.cross_entropy_stats(c, s);
            return Tensors{s};
          });
          parts.push_back(doubles(stats[0]));
          pieces.push_back(c);
        }
        Tensor stats = from_host(combined(parts), {rows, 4}, cpu).to(sums);
        Entropy expected = naive(logits, targets, vocab, smoothing);
        Tensor losses = empty({rows}, sums, cpu), dlogits = empty_like(logits);
        b.cross_entropy_losses(pieces.back(), stats, losses);
        expect_near(losses, expected.losses, 4 * tolerance(sums));
        Tensor scale = full({1}, 0.5, sums, cpu);
        for (const CrossEntropy& c : pieces) {
          b.cross_entropy_backward(c, stats, scale, c.logits);  // in place
          copy_(dlogits.narrow(1, c.first, width), c.logits);
        }
        expect_near(dlogits, expected.dlogits, within);
      }
}

TEST_P(Tokens, CrossEntropyOfAPureTail) {
  CrossEntropy c{randn({2, 4}, dtype, 1), indices({0, 1}, {2}, i64), 8, 8};
  Tensor stats = empty({2, 4}, sums, cpu), d = randn({2, 4}, dtype, 2);
  b.cross_entropy_stats(c, stats);
  expect_near(stats, {-INFINITY, 0, 0, 0, -INFINITY, 0, 0, 0}, 0);
  b.cross_entropy_backward(c, full({2, 4}, 1, sums, cpu), full({1}, 1, sums, cpu), d);
  expect_near(d, std::vector<double>(8, 0), 0);
}

}  // namespace
}  // namespace triax::test
