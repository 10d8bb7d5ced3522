#include "triax/core/tensor.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/support/expect_error.h"
#include "triax/core/check.h"
#include "triax/core/cpu/levels.h"

namespace triax {
namespace {

// 0, 1, 2, ...
Tensor counting(const Shape& shape, DType dtype = f64) {
  std::vector<double> v(size_t(shape.numel()));
  std::iota(v.begin(), v.end(), 0);
  return from_host(v, shape, cpu).to(dtype);
}
std::vector<double> values(const Tensor& x) { return x.to(f64).contiguous().to_host<double>(); }

template <class F> void expect_text(F f, const std::string& text) {
  EXPECT_EQ(test::error_of(f), text);
}

TEST(Shape, RefusesWhatDoesNotFit) {
  expect_text([] { Shape({1, 2, 3, 4, 5, 6, 7, 8, 9}); }, "shape: 9 dims; at most 8 are supported");
  expect_text([] { (void)Shape({2, 3})[2]; }, "shape: dim 2 of [2, 3]; expected -2 to 1");
  expect_text([] { (void)Shape({2, 3})[-3]; }, "shape: dim -3 of [2, 3]; expected -2 to 1");
  expect_text([] { empty({2, -1}, f32, cpu); }, "tensor: negative size in shape [2, -1]");
}

TEST(Shape, InsertsAndErases) {
  Shape s{2, 3};
  s.insert(1, 7);
  s.push_back(9);
  EXPECT_EQ(s, (Shape{2, 7, 3, 9}));
  s.erase(-2);
  EXPECT_EQ(s, (Shape{2, 7, 9}));
  EXPECT_EQ(s.numel(), 126);
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_EQ(contiguous_strides(s), (Shape{63, 9, 1}));
  EXPECT_FALSE((Shape{2, 3} == Shape{2, 3, 1}));
}

TEST(Shape, Broadcasts) {
  EXPECT_EQ(broadcast("add", {4, 1, 3}, {5, 1}), (Shape{4, 5, 3}));
  EXPECT_EQ(broadcast("add", {}, {0, 2}), (Shape{0, 2}));
  EXPECT_EQ(broadcast("add", {0}, {1}), (Shape{0}));
  expect_text(
      [] {
        broadcast("add", {4, 3}, {2, 3});
      },
      "add: shapes [4, 3] and [2, 3] do not broadcast; sizes must be equal or 1, counted "
      "from the end");
}

TEST(Tensor, ViewsShareValues) {
  Tensor x = counting({4, 6});
  EXPECT_EQ(values(x.view({2, -1}).narrow(0, 1, 1)), values(x.narrow(0, 2, 2)));
  Tensor t = x.transpose(0, -1);
  EXPECT_FALSE(t.is_contiguous());
  EXPECT_EQ(values(t.narrow(0, 5, 1)), (std::vector<double>{5, 11, 17, 23}));
  EXPECT_EQ(values(x.narrow(1, 2, 2).narrow(0, 3, 1)), (std::vector<double>{20, 21}));
  fill_(t.narrow(1, 0, 1), -1);  // the first row of x, by way of the transpose
  EXPECT_EQ(values(x.narrow(0, 0, 2)),
            (std::vector<double>{-1, -1, -1, -1, -1, -1, 6, 7, 8, 9, 10, 11}));
  Tensor e = counting({3, 1}).expand({2, 3, 2});
  EXPECT_EQ(values(e), (std::vector<double>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2}));
}

TEST(Tensor, ViewsRefuseWhatDoesNotFit) {
  Tensor x = counting({4, 6});
  expect_text([&] { x.view({5, 5}); }, "view: 24 elements of [4, 6] do not fill [5, 5]");
  expect_text([&] { x.view({-1, -1}); }, "view: shape [-1, -1]; at most one size may be -1");
  expect_text([&] { x.transpose(0, 1).view({24}); },
              "view: [6, 4] f64 on cpu is not contiguous; take contiguous(x) first");
  expect_text([&] { x.narrow(1, 4, 3); },
              "narrow: 3 elements from 4 of dim 1 of [4, 6]; expected a range within [0, 6)");
  expect_text(
      [&] {
        x.expand({4, 5});
      },
      "expand: shapes [4, 6] and [4, 5] do not broadcast; sizes must be equal or 1, "
      "counted from the end");
  expect_text([&] { x.data<float>(); }, "tensor: [4, 6] f64 on cpu read as f32");
  expect_text([&] { x.item(); }, "item: [4, 6] f64 on cpu has 24 elements; expected 1");
  expect_text([] { (void)Tensor().shape(); }, "tensor: used while undefined");
  expect_text([&] { copy_(x, x.transpose(0, 1)); },
              "copy: from [6, 4] f64 on cpu to [4, 6] f64 on cpu; shapes must be equal");
}

TEST(Tensor, AnErrorKnowsItsPlace) {
  try {
    (void)Tensor().shape();
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.place().find("core/tensor.cpp:"), 0) << e.place();
  }
}

TEST(Tensor, ZeroSizes) {
  Tensor x = zeros({3, 0, 2}, f32, cpu);
  EXPECT_TRUE(x.is_contiguous());
  EXPECT_EQ(values(x.transpose(0, 2).contiguous()).size(), 0u);
  EXPECT_EQ(clone(x).shape(), (Shape{3, 0, 2}));
  EXPECT_EQ(x.view({0, 7}).numel(), 0);
  EXPECT_EQ(counting({5}).narrow(0, 5, 0).to(f16).numel(), 0);
}

TEST(Tensor, RefusesMoreBytesThanCanBeCounted) {
  int64_t large = int64_t(1) << 32;
  for (Shape shape : {Shape{large, large}, Shape{large, large / 8}, Shape{0, large, large}})
    test::expect_error([&] { empty(shape, f32, cpu); }, {"tensor: shape [", "more bytes than can"},
                       Exit::memory);
}

TEST(Tensor, CastsBetweenAllDtypes) {
  for (int from = 0; from < dtype_count; ++from)
    for (int to = 0; to < dtype_count; ++to) {
      Tensor x = counting({7, 9}, DType(from)).to(DType(to));
      EXPECT_EQ(x.dtype(), DType(to));
      EXPECT_EQ(values(x), values(counting({7, 9})))
          << name(DType(from)) << " to " << name(x.dtype());
    }
}

// The element of `x` at (i, j, k), by its strides.
double at(const Tensor& x, int64_t i, int64_t j, int64_t k) {
  const Shape& s = x.strides();
  return x.data<double>()[i * s[0] + j * s[1] + k * s[2]];
}

// Every order of three dims on either side, over gaps: merged, tiled and plain copies.
TEST(Tensor, CopiesBetweenAnyStridesAtEveryLevel) {
  const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  auto permuted = [](const Shape& size, const int(&order)[3], int64_t gap) {
    Shape full{size[order[0]], size[order[1]], size[order[2]] + gap}, strides = size;
    Shape dense = contiguous_strides(full);
    for (int d = 0; d < 3; ++d) strides[order[d]] = dense[d];
    return Tensor(counting(full).storage(), f64, size, strides);
  };
  for (const std::string& level : host::levels())
    for (const Shape& size : {Shape{3, 5, 7}, Shape{33, 2, 65}, Shape{1, 40, 31}, Shape{70, 70, 1}})
      for (auto& from : orders)
        for (auto& to : orders)
          for (int64_t gap : {0, 2}) {
            Tensor x = permuted(size, from, gap), y = permuted(size, to, 2 - gap);
            host::backend_of(level).copy(x, y);
            for (int64_t i = 0; i < size[0]; ++i)
              for (int64_t j = 0; j < size[1]; ++j)
                for (int64_t k = 0; k < size[2]; ++k) ASSERT_EQ(at(x, i, j, k), at(y, i, j, k));
          }
}

TEST(Tensor, CopyLeavesGapsAlone) {
  Tensor y = counting({40, 50}), part = y.narrow(1, 3, 33).narrow(0, 1, 35);
  copy_(part, full({33, 35}, -5, f32, cpu).transpose(0, 1));
  std::vector<double> v = values(y);
  for (int64_t i = 0; i < 40; ++i)
    for (int64_t j = 0; j < 50; ++j) {
      bool inside = i >= 1 && i < 36 && j >= 3 && j < 36;
      ASSERT_EQ(v[size_t(i * 50 + j)], inside ? -5 : double(i * 50 + j));
    }
}

TEST(Tensor, CopiesABroadcast) {
  Tensor y = empty({33, 40}, f64, cpu);
  copy_(y, counting({33, 1}).expand({33, 40}));
  EXPECT_EQ(values(y)[40 * 7 + 3], 7);
  copy_(y.transpose(0, 1), counting({33}).expand({40, 33}));
  EXPECT_EQ(values(y)[40 * 9 + 39], 9);
}

TEST(Tensor, AccumulateAddsAcrossDtypes) {
  for (const std::string& level : host::levels())
    for (DType from : {f32, f64, f16, bf16})
      for (DType to : {f32, f64, f16, bf16}) {
        Tensor x = counting({33}, from), y = counting({33}, to);
        host::backend_of(level).accumulate(x, y);
        for (size_t i = 0; i < 33; ++i) EXPECT_EQ(values(y)[i], 2. * double(i));
      }
}

TEST(Tensor, ExclusiveMeansNobodyElseLooks) {
  Tensor x = counting({4});
  EXPECT_TRUE(x.exclusive());
  {
    Tensor view = x.narrow(0, 0, 2);
    EXPECT_FALSE(x.exclusive());
  }
  EXPECT_TRUE(x.exclusive());
  Tensor same = x;
  EXPECT_FALSE(x.exclusive());
}

}  // namespace
}  // namespace triax
