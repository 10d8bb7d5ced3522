// Products whose elements do not depend on how many rows there are beside theirs.
#include "autograd/rows_alike.h"

#include <functional>

#include "autograd/backward.h"
#include "autograd/ops.h"
#include "tests/support/tensors.h"

namespace triax {
namespace {

using namespace test;

/// What a form of product makes of rows x, onto or beside `rest`, and the gradients of both.
using Form = std::function<Tensor(const Tensor& x, const Tensor& rest)>;
Tensors results(const Form& form, const Tensor& all_x, const Tensor& all_rest, Range rows) {
  Tensor x = clone(all_x.narrow(0, rows.begin, rows.end - rows.begin));
  Tensor rest = clone(all_rest.narrow(0, rows.begin, rows.end - rows.begin));
  require_grad(x);
  require_grad(rest);
  Tensor y;
  {
    autograd::RowsAlike scope(true);
    y = form(gelu(x), rest);
  }
  backward(sum(y * rest.detach()));
  return {y.detach(), grad(x), grad(rest)};
}

TEST(RowsAlike, FewRowsHaveTheBitsOfMany) {
  for (DType dtype : {f32, bf16, f16, f64}) {
    Tensor x = filled({70, 48}, 1, dtype), rest = filled({70, 24}, 2, dtype);
    Tensor w = filled({24, 48}, 3, dtype), b = filled({24}, 4, dtype);
    Form forms[] = {[&](auto& h, auto& r) { return linear(h, w, b) + r; },
                    [&](auto& h, auto& r) { return linear_gelu(h, w, b) + r; },
                    [&](auto& h, auto& r) { return linear_onto(r, h, w, b); },
                    [&](auto& h, auto& r) { return linear_in(dtype, h, w) + r; },
                    [&](auto& h, auto& r) { return matmul(h, w.transpose(0, 1)) + r; },
                    [&](auto& h, auto& r) {  // in a batch of one
                      Tensor one = reshape(h, {1, h.size(0), 48});
                      Tensor y = matmul(one, reshape(w, {1, 24, 48}).transpose(1, 2));
                      return reshape(y, r.shape()) + r;
                    },
                    [&](auto& h, auto& r) {
                      return recompute([&](const Tensor& t) { return linear(t, w, b); }, h) + r;
                    }};
    for (auto& form : forms) {
      Tensors whole = results(form, x, rest, {0, 70});
      for (int64_t count : {1, 2, 5, 15, 16, 31, 33, 40}) {
        Tensors part = results(form, x, rest, {20, 20 + count});
        for (size_t i = 0; i < part.size(); ++i)
          expect_bitwise(part[i], clone(whole[i].narrow(0, 20, count)),
                         std::string(name(dtype)) + " form " + std::to_string(&form - forms) +
                             " rows " + std::to_string(count) + " result " + std::to_string(i));
      }
    }
  }
}

}  // namespace
}  // namespace triax
