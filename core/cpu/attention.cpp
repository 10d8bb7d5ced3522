#include <omp.h>

#include "core/cpu/cpu.h"
#include "core/cpu/scratch.h"

namespace triax::host::TRIAX_LEVEL {
namespace {

/// One head of one sequence.
template <class T> struct Head {
  using A = Accumulator<T>;
  const T *q, *k, *v;  // [time, head_dim], rows `stride` apart
  int64_t time, dim, stride;
  int64_t token, column;  // of row 0 in the tensor; of key 0 in the mask
  random::Mask mask;
  A scale;

  Head(const Attention& a, int64_t sequence, int64_t head)
      : time(a.time),
        dim(a.head_dim),
        stride(a.qkv.size(1)),
        token(sequence * time),
        column(head * time),
        mask(a.mask),
        scale(A(1) / fn::sqrt(A(dim))) {
    q = static_cast<const T*>(a.qkv.data()) + token * stride + head * 3 * dim;
    k = q + dim;
    v = k + dim;
  }
  A score(int64_t i, int64_t j) const {
    A sum = 0;
    for (int64_t d = 0; d < dim; ++d) sum += A(q[i * stride + d]) * A(k[j * stride + d]);
    return sum * scale;
  }
  A keep(int64_t i, int64_t j) const {
    return mask.p > 0 ? A(mask.at(token + i, column + j)) : A(1);
  }
};

template <class T, class A = Accumulator<T>>
void forward(const Head<T>& h, T* y, int64_t y_stride, A* lse, int64_t heads, A* room) {
  A *p = room, *sum_v = room + h.time;
  for (int64_t i = 0; i < h.time; ++i) {
    A largest = -__builtin_inff(), sum = 0;
    for (int64_t j = 0; j <= i; ++j) {
      p[j] = h.score(i, j);
      largest = fn::max(largest, p[j]);
    }
    for (int64_t j = 0; j <= i; ++j) sum += p[j] = fn::exp(p[j] - largest);
    for (int64_t d = 0; d < h.dim; ++d) sum_v[d] = 0;
    for (int64_t j = 0; j <= i; ++j) {
      A w = p[j] / sum * h.keep(i, j);
      for (int64_t d = 0; d < h.dim; ++d) sum_v[d] += w * A(h.v[j * h.stride + d]);
    }
    for (int64_t d = 0; d < h.dim; ++d) y[i * y_stride + d] = T(sum_v[d]);
    lse[i * heads] = largest + fn::log(sum);
  }
}

template <class T, class A = Accumulator<T>>
void backward(const Head<T>& h, const T* y, const T* dy, const A* lse, int64_t heads, T* dq,
              A* room) {
  int64_t y_stride = heads * h.dim, n = h.time * h.dim;
  A *gq = room, *gk = gq + n, *gv = gk + n;
  for (int64_t i = 0; i < 3 * n; ++i) gq[i] = 0;
  for (int64_t i = 0; i < h.time; ++i) {
    const T *yi = y + i * y_stride, *dyi = dy + i * y_stride;
    A delta = 0;
    for (int64_t d = 0; d < h.dim; ++d) delta += A(yi[d]) * A(dyi[d]);
    for (int64_t j = 0; j <= i; ++j) {
      A p = fn::exp(h.score(i, j) - lse[i * heads]), keep = h.keep(i, j), dp = 0;
      for (int64_t d = 0; d < h.dim; ++d) dp += A(dyi[d]) * A(h.v[j * h.stride + d]);
      A ds = p * (dp * keep - delta) * h.scale;
      for (int64_t d = 0; d < h.dim; ++d) {
        gv[j * h.dim + d] += p * keep * A(dyi[d]);
        gq[i * h.dim + d] += ds * A(h.k[j * h.stride + d]);
        gk[j * h.dim + d] += ds * A(h.q[i * h.stride + d]);
      }
    }
  }
  for (int64_t i = 0; i < h.time; ++i)
    for (int part = 0; part < 3; ++part)
      for (int64_t d = 0; d < h.dim; ++d)
        dq[i * h.stride + part * h.dim + d] = T(room[part * n + i * h.dim + d]);
}

}  // namespace

void Cpu::causal_attention(const Attention& a, const Tensor& y, const Tensor& lse) {
  visit_float(a.qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    int64_t heads = a.heads(), tasks = a.qkv.size(0) / a.time * heads, each = a.time + a.head_dim;
    Scratch<A> scratch(each * omp_get_max_threads());
    A* room = scratch.data();
    T* out = static_cast<T*>(y.data());
    A* out_lse = static_cast<A*>(lse.data());
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) {
      int64_t head = task % heads;
      Head<T> h(a, task / heads, head);
      forward(h, out + h.token * heads * h.dim + head * h.dim, heads * h.dim,
              out_lse + h.token * heads + head, heads, room + each * omp_get_thread_num());
    }
  });
}

void Cpu::causal_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                    const Tensor& dy, const Tensor& dqkv) {
  visit_float(a.qkv.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    int64_t heads = a.heads(), tasks = a.qkv.size(0) / a.time * heads,
            each = 3 * a.time * a.head_dim;
    Scratch<A> scratch(each * omp_get_max_threads());
    A* room = scratch.data();
    const T *out = static_cast<const T*>(y.data()), *g = static_cast<const T*>(dy.data());
    T* dx = static_cast<T*>(dqkv.data());
    const A* l = static_cast<const A*>(lse.data());
#pragma omp parallel for schedule(static)
    for (int64_t task = 0; task < tasks; ++task) {
      int64_t head = task % heads;
      Head<T> h(a, task / heads, head);
      int64_t at = h.token * heads * h.dim + head * h.dim;
      backward(h, out + at, g + at, l + h.token * heads + head, heads,
               dx + h.token * h.stride + head * 3 * h.dim, room + each * omp_get_thread_num());
    }
  });
}

}  // namespace triax::host::TRIAX_LEVEL
