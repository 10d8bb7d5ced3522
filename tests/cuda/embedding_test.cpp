#include "tests/cuda/emulated.h"

namespace triax::test {
namespace {

class CudaEmbedding : public CudaKernels {
 protected:
  // Sums of up to 256 tokens are made in the same order: no bit may differ.
  void expect_equal_sums(const Tensor& ids, int64_t first, const Shape& table, int64_t skip,
                         double difference = 0) {
    SCOPED_TRACE(testing::Message() << ids.numel() << " tokens to " << str(table) << ", skip "
                                    << skip << ", first " << first);
    Tensor dy = exact(randn({ids.numel(), table[1]}, dtype, 2), skip);
    std::vector<DType> tables = {sums};
    if (dtype != sums) tables.push_back(dtype);
    for (DType to : tables)
      expect_equal(difference, [&](Outputs& on) {
        Tensor added = on.add(exact(randn(table, to, 3), skip));
        on->embedding_backward(ids, dy, first, added, Write::add);
        on->embedding_backward(ids, dy, first, on.out(table, to, skip), Write::set);
      });
  }
};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaEmbedding, every_dtype(), name_of_dtype);

// Numbers below `bound`, many of them equal.
Tensor some_ids(int64_t n, int64_t bound, DType dtype) {
  Tensor x = empty({n}, i64, cpu);
  for (int64_t i = 0; i < n; ++i) x.data<int64_t>()[i] = (i * i + i / 3) % bound;
  return exact(x.to(dtype));
}

TEST_P(CudaEmbedding, OfASlice) {
  const int64_t first = 10, rows = 20;
  for (int64_t tokens : odd_sizes)
    for (int64_t width : {0, 1, 31, 33, 264, 1000})
      for (int64_t skip : {0, 1}) {
        if (tokens == 1000 ? width != 33 : width == 1000 && tokens != 33) continue;
        Tensor table = exact(randn({rows, width}, dtype, 1), skip);
        Tensor ids = some_ids(tokens, 40, skip ? i32 : i64);
        expect_equal(0, [&](Outputs& on) {
          on->embedding(ids, table, first, on.out({tokens, width}, dtype, skip));
        });
      }
}

TEST_P(CudaEmbedding, BackwardOfASlice) {
  for (int64_t tokens : odd_sizes)
    for (int64_t width : {1, 31, 33, 132})
      for (int64_t skip : {0, 1}) {
        if (tokens == 1000 && width % 33) continue;
        expect_equal_sums(some_ids(tokens, 40, skip ? i32 : i64), 10, {20, width}, skip);
      }
}

TEST_P(CudaEmbedding, BackwardOfManyTokens) {  // tiles are merged, once and twice
  expect_equal_sums(some_ids(3000, 700, i64), 0, {700, 4}, 0);
  expect_equal_sums(some_ids(9001, 900, i32), 100, {300, 4}, 0);
}

TEST_P(CudaEmbedding, BackwardOfOneRow) {  // as many tokens as a warp has under way, and more
  for (int64_t tokens : {32, 37, 200}) expect_equal_sums(some_ids(tokens, 1, i64), 0, {3, 33}, 0);
}

// Rows of fewer tokens than a warp adds up, of as many, and of more: in two, three and six pieces.
Tensor skewed_ids() {
  const int64_t tokens[] = {100, 300, 1, 700, 256, 1400, 257, 3}, n = 3017;
  Tensor ids = empty({n}, i64, cpu);
  int64_t i = 0;
  for (int64_t row = 0; row < 8; ++row)
    for (int64_t j = 0; j < tokens[row]; ++j, ++i) ids.data<int64_t>()[i * 1009 % n] = row;
  return exact(ids);
}

TEST_P(CudaEmbedding, BackwardOfFrequentRows) {
  for (int64_t width : {4, 33, 132})
    for (int64_t first : {0, 1})
      expect_equal_sums(skewed_ids(), first, {7, width}, width == 33, 10 * within);
}

TEST_P(CudaEmbedding, ASliceHasTheBitsOfTheWhole) {
  Tensor ids = skewed_ids(), dy = randn({ids.numel(), 8}, dtype, 2);
  Tensor whole = empty({8, 8}, sums, cpu);
  b.embedding_backward(ids, dy, 0, whole, Write::set);
  for (int64_t first : {1, 3, 5}) {
    Tensor slice = empty({2, 8}, sums, cpu);
    b.embedding_backward(ids, dy, first, slice, Write::set);
    EXPECT_TRUE(same_bits(slice, whole.narrow(0, first, 2))) << "from row " << first;
  }
}

TEST_P(CudaEmbedding, BackwardIntoNothing) {
  b.embedding_backward(some_ids(5, 3, i64), randn({5, 4}, dtype, 1), 0, empty({0, 4}, dtype, cpu),
                       Write::set);
  b.embedding_backward(some_ids(5, 3, i64), empty({5, 0}, dtype, cpu), 0, empty({3, 0}, dtype, cpu),
                       Write::set);
}

class CudaIndex : public CudaKernels {};
INSTANTIATE_TEST_SUITE_P(Emulated, CudaIndex, every_dtype(), name_of_dtype);

Tensor indices(const Shape& shape, int64_t below, DType dtype) {
  Tensor x = exact(empty(shape, i64, cpu));
  for (int64_t i = 0; i < x.numel(); ++i) x.data<int64_t>()[i] = i * 7 % below;
  return exact(x.to(dtype));
}

TEST_P(CudaIndex, SelectAndAdd) {
  for (DType of : {i32, i64})
    for (int dim : {0, 1, -1})
      for (int64_t n : {0, 1, 31, 33}) {
        SCOPED_TRACE(testing::Message() << "dim " << dim << ", n " << n);
        Tensor x = exact(randn({5, 6, 33}, dtype, 1));
        Tensor index = indices({n}, x.size(dim), of);
        Shape picked = x.shape();
        picked[dim] = n;
        Tensor dy = exact(randn(picked, dtype, 2));
        expect_equal(0, [&](Outputs& on) {
          on->index_select(x, dim, index, on.out(picked));
          on->index_add(dy, dim, index, on.out(x.shape()));
          on->index_add(dy, dim, index, on.out(x.shape(), sums));
          if (dim == 1 && n > 0) on->index_add(dy, dim, index, on.out({33, 6, 5}).transpose(0, 2));
        });
      }
}

TEST_P(CudaIndex, OneDim) {
  Tensor x = exact(randn({33}, dtype, 1)), dy = exact(randn({100}, dtype, 2));
  Tensor index = indices({100}, 33, i32);
  expect_equal(0, [&](Outputs& on) {
    on->index_select(x, 0, index, on.out({100}));
    on->gather(x, index, on.out({100}));
    on->index_add(dy, 0, index, on.out({33}));
    on->scatter_add(dy, index, on.out({33}));
  });
}

TEST_P(CudaIndex, GatherAndScatterAdd) {
  for (DType of : {i32, i64})
    for (int64_t n : {1, 31, 33}) {
      Tensor x = exact(randn({4, 5, 33}, dtype, 1)), dy = exact(randn({4, 5, n}, dtype, 2));
      Tensor index = indices({4, 5, n}, 33, of);
      expect_equal(0, [&](Outputs& on) {
        on->gather(x, index, on.out(dy.shape()));
        on->scatter_add(dy, index, on.out(x.shape()));
        on->scatter_add(dy, index, on.out(x.shape(), sums));
      });
    }
}

}  // namespace
}  // namespace triax::test
