// What docs/coming-from.md composes of ops where PyTorch has a function of its own: values and
// gradients.
#include <cmath>

#include "tests/support/gradcheck.h"
#include "tests/support/tensors.h"
#include "triax/autograd/ops.h"

namespace triax {
namespace {

using namespace test;

Tensor maximum(const Tensor& a, const Tensor& b) {  // of equal elements, b gets the gradient
  return where(a > b, a, b);
}

Tensor logsumexp(const Tensor& x) {  // [.., n] -> [.., 1]
  Tensor top = max(x, {-1}, Keep::yes).detach();
  return top + log(sum(exp(x - top), {-1}, Keep::yes));
}

Tensor cumsum(const Tensor& x) {  // [rows, n], along n
  int64_t n = x.size(1);
  std::vector<double> earlier(size_t(n * n));
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i; j < n; ++j) earlier[size_t(i * n + j)] = 1;
  return matmul(x, from_host(earlier, {n, n}, x.device()).to(x.dtype()));
}

/// x [n, h, w, channels]
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& gamma, const Tensor& beta) {
  int64_t n = x.size(0), each = x.size(3) / groups;
  Tensor of_group = permute(reshape(x, {n, -1, groups, each}), {0, 2, 1, 3});
  Tensor rows = reshape(of_group, {n * groups, -1});
  Tensor one = full({rows.size(1)}, 1, x.dtype(), x.device());
  Tensor y = reshape(layer_norm(rows, one, zeros_like(one)), of_group.shape());
  return reshape(permute(y, {0, 2, 1, 3}), x.shape()) * gamma + beta;
}

/// x [n, time, in], weight [out, window, in] -> [n, time, out], with zeros around; window odd
Tensor conv1d(const Tensor& x, const Tensor& weight) {
  Tensor image = reshape(x, {x.size(0), 1, x.size(1), x.size(2)});
  Tensor window = reshape(weight, {weight.size(0), 1, weight.size(1), weight.size(2)});
  Tensor y = conv2d(image, window, {.windows = {.padding = {0, weight.size(1) / 2}}});
  return reshape(y, {x.size(0), -1, weight.size(0)});
}

Tensor upsample(const Tensor& x) {  // nearest: [n, h, w, channels] -> [n, 2 h, 2 w, channels]
  int64_t n = x.size(0), h = x.size(1), w = x.size(2), channels = x.size(3);
  Tensor each = expand(reshape(x, {n, h, 1, w, 1, channels}), {n, h, 2, w, 2, channels});
  return reshape(each, {n, 2 * h, 2 * w, channels});
}

/// q, k, v [n, heads, time, head_dim]; padding u8 [n, 1, 1, time], 1 where no query may look. Where
/// all of a sequence is padding, NaN.
Tensor padded_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& padding) {
  Tensor scores = matmul(q, transpose(k, 2, 3)) / std::sqrt(double(q.size(3)));
  return matmul(softmax(masked_fill(scores, padding, -INFINITY)), v);
}

TEST(Compositions, HaveTheGradientsOfTheirFormulas) {
  using In = const Tensors&;
  auto image = filled({2, 3, 2, 4}, 1);
  gradcheck([](In in) { return maximum(in[0], in[1]); }, {filled({3, 4}, 1), filled({3, 4}, 2)});
  gradcheck([](In in) { return logsumexp(in[0]); }, {filled({3, 4}, 1)});
  gradcheck([](In in) { return cumsum(in[0]); }, {filled({3, 4}, 1)});
  gradcheck([](In in) { return group_norm(in[0], 2, in[1], in[2]); },
            {image, filled({4}, 2), filled({4}, 3)});
  gradcheck([](In in) { return conv1d(in[0], in[1]); },
            {filled({2, 5, 3}, 1), filled({4, 3, 3}, 2)});
  gradcheck([](In in) { return upsample(in[0]); }, {image});
  Tensor padding = from_host(std::vector<uint8_t>{0, 0, 1, 0, 1, 1}, {2, 1, 1, 3}, test_device());
  gradcheck([&](In in) { return padded_attention(in[0], in[1], in[2], padding); },
            {filled({2, 2, 3, 4}, 1), filled({2, 2, 3, 4}, 2), filled({2, 2, 3, 4}, 3)});
}

// Computed by PyTorch's functions of these names.
TEST(Compositions, HaveTheValuesOfPyTorch) {
  auto counted = [](const Shape& s) {
    std::vector<double> v(size_t(s.numel()));
    for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(double(i));
    return from_host(v, s, test_device());
  };
  auto is = [](const Tensor& y, const std::vector<double>& expected, const char* what) {
    expect_near(y, expected, 1e-8, what);
  };
  is(maximum(counted({3}), zeros({3}, f64, test_device())), {0, 0.841470985, 0.909297427},
     "maximum");
  is(logsumexp(counted({2, 3})), {1.758263793, 0.695161160}, "logsumexp");
  is(cumsum(counted({2, 3})),
     {0, 0.841470985, 1.750768412, 0.141120008, -0.615682487, -1.574606762}, "cumsum");
  is(group_norm(counted({1, 2, 1, 4}), 2, counted({4}), counted({4}) + 1),
     {1, 3.100004938, 3.000858850, 1.074904127, 1, 0.962472960, 0.651497119, 1.233135624},
     "group_norm");
  is(conv1d(counted({1, 4, 2}), counted({2, 3, 2})),
     {-0.704733571, -0.289009875, 3.047095867, 2.881245650, -1.123271622, -1.810269284,
      -0.968264793, -0.424223757},
     "conv1d");
  is(upsample(counted({1, 1, 2, 2})),
     {0, 0.841470985, 0, 0.841470985, 0.909297427, 0.141120008, 0.909297427, 0.141120008, 0,
      0.841470985, 0, 0.841470985, 0.909297427, 0.141120008, 0.909297427, 0.141120008},
     "upsample");
  Tensor q = counted({1, 1, 3, 2});
  Tensor padding = from_host(std::vector<uint8_t>{0, 1, 0}, {1, 1, 1, 3}, test_device());
  is(padded_attention(q, q + 1, q - 1, padding),
     {-1.193109426, -0.617926676, -1.256809848, -0.769466790, -1.632376599, -1.662921295},
     "padded_attention");
}

}  // namespace
}  // namespace triax
