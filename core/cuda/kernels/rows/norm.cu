#include "triax/core/cuda/kernels/rows/reduce.h"
#include "triax/core/cuda/kernels/rows/row.h"
#include "triax/core/cuda/kernels/tensors.h"

namespace triax::cuda::TRIAX_TARGET {

/// y = (x - mean) * rstd * gamma + beta over rows of [rows, width]. Mean first, then the squares
/// around it: E[x^2] - E[x]^2 would cancel. `mean` and `beta` may be null (RMS norm).
template <class T, class Layout> struct NormForward {
  static constexpr int threads = Layout::threads;
  using A = Accumulator<T>;
  using In = Row<T, Layout, 1>;
  using Shared = Partials<A>;
  const T *x, *gamma, *beta;
  A *mean, *rstd;
  T* y;
  int64_t rows, width;
  A eps;

  TRIAX_HD A mean_of(const Thread& t, const In& row, Shared& shared) const {
    A sum = 0;
    row.each([&](int64_t, auto& in) {
#pragma unroll
      for (int k = 0; k < In::size; ++k) sum += load(in[0].at[k]);
    });
    return Layout::reduce(t, sum, Sum{}, shared) / A(width);
  }
  TRIAX_HD A rstd_of(const Thread& t, const In& row, A middle, Shared& shared) const {
    A squares = 0;
    row.each([&](int64_t, auto& in) {
#pragma unroll
      for (int k = 0; k < In::size; ++k) {
        A d = load(in[0].at[k]) - middle;
        squares = fn::fma(d, d, squares);
      }
    });
    squares = Layout::reduce(t, squares, Sum{}, shared);
    return A(1) / fn::sqrt(squares / A(width) + eps);
  }
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t r = Layout::row(t);
    if (r >= rows) return;  // a whole warp, and then none of its block waits
    In row(t, width, x);
    A middle = mean ? mean_of(t, row, shared) : A(0);
    A scale = rstd_of(t, row, middle, shared);
    if (row.rank == 0) {
      if (mean) mean[r] = middle;
      rstd[r] = scale;
    }
    T* to = y + r * width;
    row.each([&](int64_t i, auto& in) {
      typename In::Part out, g = read_chunk<In::size>(gamma + i), b;
      if (beta) b = read_chunk<In::size>(beta + i);
#pragma unroll
      for (int k = 0; k < In::size; ++k) {
        A v = (load(in[0].at[k]) - middle) * scale * load(g.at[k]);
        out.at[k] = convert<T>(beta ? v + load(b.at[k]) : v);
      }
      write_chunk(to + i, out);
    });
  }
};

/// dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) with g = gamma * dy, or +=; RMS norm (`mean`
/// null) lacks mean(g).
template <class T, class Layout> struct NormGradient {
  using A = Accumulator<T>;
  using In = Row<T, Layout, 2>;
  const T *x, *gamma, *dy;
  const A *mean, *rstd;
  T* dx;
  int64_t rows, width;
  A inverse;  ///< 1 / width
  Write write;

  /// Prefetches this thread's part of row r.
  TRIAX_HD void ask(const Thread& t, int64_t r) const {
#pragma unroll
    for (int p = 0; p < Layout::most; ++p) {
      int64_t i = (Layout::rank(t) + p * Layout::team) * In::size;
      if (i >= width) return;
      prefetch(x + r * width + i);
      prefetch(dy + r * width + i);
      if (write == Write::add) prefetch(dx + r * width + i);
    }
  }
  /// Computes row r. Calls add(i, xhat, dy) for each chunk of this thread, of elements from i on.
  template <class Add>
  TRIAX_HD void row(const Thread& t, int64_t r, PairOfPartials<A>& shared, Add add) const {
    int64_t shift = (r - Layout::row(t)) * width;
    T* to = dx + r * width;
    In row(t, width, x + shift, dy + shift);
    if constexpr (Layout::most > 0)
      if (write == Write::add) row.each([&](int64_t i, auto&) { prefetch(to + i); });
    A middle = mean ? mean[r] : A(0), scale = rstd[r], sum = 0, dot = 0;
    row.each([&](int64_t i, auto& in) {
      typename In::Part factor = read_chunk<In::size>(gamma + i);
#pragma unroll
      for (int k = 0; k < In::size; ++k) {
        A g = load(factor.at[k]) * load(in[1].at[k]);
        sum += g;
        dot = fn::fma(g, load(in[0].at[k]) - middle, dot);
      }
    });
    if (mean) Layout::reduce(t, sum, dot, Sum{}, shared);
    else sum = 0, dot = Layout::reduce(t, dot, Sum{}, shared.a);
    A a = sum * inverse, b = dot * scale * inverse;
    row.each([&](int64_t i, auto& in) {
      typename In::Part factor = read_chunk<In::size>(gamma + i), out;
      A hats[In::size], ups[In::size];
      if (write == Write::add) out = read_chunk<In::size>(to + i);
#pragma unroll
      for (int k = 0; k < In::size; ++k) {
        ups[k] = load(in[1].at[k]);
        hats[k] = (load(in[0].at[k]) - middle) * scale;
        A d = scale * (fn::fma(-hats[k], b, load(factor.at[k]) * ups[k]) - a);
        if (write == Write::add) d += load(out.at[k]);
        out.at[k] = convert<T>(d);
      }
      write_chunk(to + i, out);
      add(i, hats, ups);
    });
  }
};

/// Computes dx alone: a team for each row.
template <class T, class Layout> struct NormBackward {
  static constexpr int threads = Layout::threads;
  using Shared = PairOfPartials<Accumulator<T>>;
  NormGradient<T, Layout> of;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t r = Layout::row(t);
    if (r >= of.rows) return;  // a whole warp, and then none of its block waits
    of.row(t, r, shared, [](int64_t, const auto&, const auto&) {});
  }
};

/// Computes dx, and parts[2, blocks, width] = sums of dy * xhat and of dy over each block's rows: x
/// and dy are read once for both. The block's teams take its rows in turn. Each has sums of its own
/// in shared memory, where a thread touches its own columns alone; at the end they are joined in
/// order. RMS norm has the first half alone.
template <class T, class Layout> struct NormBackwardParts {
  static constexpr int threads = Layout::threads, teams = threads / Layout::team;
  using A = Accumulator<T>;
  static constexpr int size = Layout::packs ? 16 / int(sizeof(T)) : 1, quad = 16 / int(sizeof(A));
  static_assert(size % quad == 0 && Layout::most > 0);
  using Quad = Pack<A, quad>;
  struct Shared {
    Quad dgamma[teams][Layout::team * Layout::most * size / quad];
    Quad dbeta[teams][Layout::team * Layout::most * size / quad];
    PairOfPartials<A> partials;
  };
  NormGradient<T, Layout> of;
  A* parts;
  int64_t each;  ///< rows of a block; every block has some

  /// Returns the quad of element i: neighbouring threads have neighbouring quads, to use all banks.
  TRIAX_HD static int quad_of(int i) {
    int pack = i / size, high = i % size / quad;
    return (pack / Layout::team * (size / quad) + high) * Layout::team + pack % Layout::team;
  }
  TRIAX_HD static void add(Quad& to, const A* x, bool fresh) {
    Quad sum = load_pack<quad>(to.at);
#pragma unroll
    for (int k = 0; k < quad; ++k) sum.at[k] = fresh ? x[k] : sum.at[k] + x[k];
    store_pack(to.at, sum);
  }
  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t block = t.block.x, blocks = t.blocks.x;
    int64_t begin = block * each, end = begin + each < of.rows ? begin + each : of.rows;
    int team = teams == 1 ? 0 : t.warp();
    for (int64_t r = begin + team; r < end; r += teams) {
      if (Layout::most == 1 && r + teams < end) of.ask(t, r + teams);
      of.row(t, r, shared.partials, [&](int64_t i, const auto& hats, const auto& ups) {
        A products[size];
#pragma unroll
        for (int k = 0; k < size; ++k) products[k] = ups[k] * hats[k];
#pragma unroll
        for (int k = 0; k < size; k += quad) {
          int at = quad_of(int(i) + k);
          add(shared.dgamma[team][at], products + k, r < begin + teams);
          if (of.mean) add(shared.dbeta[team][at], ups + k, r < begin + teams);
        }
      });
    }
    t.sync();
    int64_t busy = end - begin < teams ? end - begin : teams;  // the others have no sums
    for (int64_t c = t.id; c < of.width; c += threads) {
      int at = quad_of(int(c)), k = int(c) % quad;
      A dgamma = 0, dbeta = 0;
      for (int64_t i = 0; i < busy; ++i) {
        dgamma += shared.dgamma[i][at].at[k];
        if (of.mean) dbeta += shared.dbeta[i][at].at[k];
      }
      parts[block * of.width + c] = dgamma;
      if (of.mean) parts[(blocks + block) * of.width + c] = dbeta;
    }
  }
};

/// parts[2, pieces, width] = sums of dy * xhat and of dy over pieces of the rows. A block for each
/// piece of 32 threads' columns; its warps take rows in turn and are joined in order. `mean` and
/// `rstd` may be null: 0 and 1.
template <class T, int size, class A = Accumulator<T>> struct NormWeightPieces {
  static constexpr int threads = 256, warps = threads / 32, columns = 32 * size;
  struct Shared {
    OfWarps<A, size> dgamma, dbeta;
  };
  const T *x, *dy;
  const A *mean, *rstd;
  A* parts;
  int64_t rows, width, pieces;

  TRIAX_HD void operator()(const Thread& t, Shared& shared) const {
    int64_t groups = (width + columns - 1) / columns, piece = t.block.x / groups;
    int64_t first = (t.block.x - piece * groups) * columns, column = first + t.lane() * size;
    int64_t begin = rows * piece / pieces, end = rows * (piece + 1) / pieces;
    A dgamma[size], dbeta[size];
#pragma unroll
    for (int k = 0; k < size; ++k) dgamma[k] = dbeta[k] = 0;
    if (column < width)
#pragma unroll 4
      for (int64_t r = begin + t.warp(); r < end; r += warps) {
        auto in = read_chunk<size>(x + r * width + column);
        auto up = read_chunk<size>(dy + r * width + column);
        A middle = mean ? mean[r] : A(0), scale = rstd ? rstd[r] : A(1);
#pragma unroll
        for (int k = 0; k < size; ++k) {
          A g = load(up.at[k]);
          dgamma[k] += g * ((A(load(in.at[k])) - middle) * scale);
          dbeta[k] += g;
        }
      }
    A* to = parts + piece * width + first;
    join_warps(t, dgamma, Sum{}, shared.dgamma, [&](int c, A sum) {
      if (first + c < width) to[c] = sum;
    });
    join_warps(t, dbeta, Sum{}, shared.dbeta, [&](int c, A sum) {
      if (first + c < width) to[pieces * width + c] = sum;
    });
  }
};

/// a x + b (z - m) + c, with the factors of an element's channel; or without x.
template <class T> struct ChannelAffine {
  using A = Accumulator<T>;
  TRIAX_HD T operator()(T z, A b, A m, A c) const { return convert<T>(b * (load(z) - m) + c); }
  TRIAX_HD T operator()(T x, T z, A a, A b, A m, A c) const {
    A v = b * (load(z) - m) + c;
    return convert<T>(a * load(x) + v);
  }
};

namespace {

// Returns as many pieces as make a few blocks per processor of a large GPU, of 32 rows at least.
int64_t pieces_of(int64_t rows, int64_t groups) {
  return fn::max<int64_t>(1, fn::min((rows + 31) / 32, (1056 + groups - 1) / groups));
}

template <class U> struct WeightGradients {
  U *dgamma, *dbeta;
  Write write;
};

// Joins parts [2, pieces, width].
template <class A, class U>
void join(Stream stream, const A* parts, const WeightGradients<U>& to, Pieces of) {
  visit_write(to.write, [&]<Write write>() {
    using Join = JoinColumns<Sum, A, U, write>;
    Join dgamma{parts, to.dgamma, of}, dbeta{parts + of.pieces * of.inner, to.dbeta, of};
    int64_t each = Join::blocks(of);
    launch(stream, {to.dbeta ? 2 * each : each}, JoinPair<Join>{dgamma, dbeta, each});
  });
}

// Makes the weights' gradients; sums are made in A.
template <class T, int size, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  using Part = NormWeightPieces<T, size, A>;
  int64_t rows = dy.size(0), width = n.x.size(-1);
  if (width == 0) return;
  int64_t groups = (width + Part::columns - 1) / Part::columns;
  int64_t pieces = pieces_of(rows, groups);
  Scratch<A> parts(q.memory, 2 * pieces * width);
  launch(q.stream, {groups * pieces},
         Part{values<T>(n.x), values<T>(dy), values<A>(n.mean), values<A>(n.rstd), parts.data(),
              rows, width, pieces});
  join(q.stream, parts.data(), to, {{1, rows, width}, pieces});
}

template <class T, class A, class U>
void weights(const Queue& q, const Norm& n, const Tensor& dy, const WeightGradients<U>& to) {
  bool aligned = rows_aligned(n.x.size(-1), values<const T>(n.x), values<const T>(dy));
  if (aligned) weights<T, pack_size<T>(), A>(q, n, dy, to);
  else weights<T, 1, A>(q, n, dy, to);
}

// Where a warp would hold 8 packs a thread, a block takes the row: the weights' sums of eight
// warps, each as wide as such a row, would leave shared memory for one block.
template <class Layout>
using BackwardLayout =
    std::conditional_t<Layout::team == 32 && Layout::most == 8, RowLayout<256, 1, true>, Layout>;

// Makes dx, and parts of the weights' gradients where a row is held in few registers.
template <class T, class Layout>
Tensor backward(Stream stream, const Norm& n, const NormGradient<T, Layout>& of) {
  if constexpr (Layout::most == 1 || Layout::most == 4) {
    using Parts = NormBackwardParts<T, Layout>;
    constexpr int64_t most = 4 * 132;  // of an H100's 132 processors each runs two or more at once
    int64_t each = fn::max<int64_t>(2 * Parts::teams, (of.rows - 1) / most + 1);
    int64_t blocks = (of.rows - 1) / each + 1;
    Tensor parts = empty({of.mean ? 2 : 1, blocks, of.width}, n.rstd.dtype(), n.rstd.device());
    launch(stream, {blocks}, Parts{of, values<Accumulator<T>>(parts), each});
    return parts;
  } else {
    launch(stream, Layout::grid(of.rows), NormBackward<T, Layout>{of});
    return {};
  }
}

}  // namespace

void Cuda::norm(const Norm& n, const Tensor& y) {
  int64_t rows = n.rstd.numel(), width = n.x.size(-1);
  if (rows == 0) return;
  visit_float(y.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *x = values<T>(n.x), *gamma = values<T>(n.gamma), *beta = values<T>(n.beta);
    T* to = values<T>(y);
    visit_layout<T>(width, rows_aligned(width, x, gamma, beta, to), [&]<class Layout>() {
      launch(stream(), Layout::grid(rows),
             NormForward<T, Layout>{x, gamma, beta, values<A>(n.mean), values<A>(n.rstd), to, rows,
                                    width, A(n.eps)});
    });
  });
}

Tensor Cuda::norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) {
  int64_t rows = n.rstd.numel(), width = n.x.size(-1);
  Tensor parts;
  if (rows == 0 || width == 0) return parts;
  visit_float(dx.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const T *x = values<T>(n.x), *gamma = values<T>(n.gamma), *up = values<T>(dy);
    const A *mean = values<A>(n.mean), *rstd = values<A>(n.rstd);
    T* to = values<T>(dx);
    visit_layout<T>(width, rows_aligned(width, x, gamma, up, to), [&]<class Layout>() {
      parts = backward<T, BackwardLayout<Layout>>(
          stream(), n, {x, gamma, up, mean, rstd, to, rows, width, A(1) / A(width), write});
    });
  });
  return parts;
}

void Cuda::norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                                 const Tensor& dbeta, Write write) {
  Queue q{stream(), allocator()};
  visit_float(dy.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    visit_sum<T>(dgamma.dtype(), [&]<class U>() {
      WeightGradients<U> to{values<U>(dgamma), values<U>(dbeta), write};
      if (n.parts.defined())
        join(q.stream, values<const A>(n.parts), to,
             {{1, n.parts.size(1), n.parts.size(2)}, n.parts.size(1)});
      else weights<T, A>(q, n, dy, to);
    });
  });
}

void Cuda::channel_sums(const Tensor& x, const Tensor& z, const Tensor& sums) {
  Queue q{stream(), allocator()};
  auto* plain = values<double>(sums);
  WeightGradients<double> to{plain + x.size(1), plain, Write::set};
  visit_float(x.dtype(), [&]<class T>() { weights<T, double>(q, {z, {}, {}, {}, {}, 0}, x, to); });
}

void Cuda::channel_affine(const Tensor& x, const Tensor& z, const Tensor& k, const Tensor& y) {
  visit_float(z.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    auto row = [&](int64_t i) { return k.narrow(0, i, 1); };
    Tensor a = row(0), b = row(1), m = row(2), c = row(3);
    if (x.defined())
      launch_broadcast(stream(), strides_of(y, x, z, a, b, m, c),
                       operands<T, T, T, A, A, A, A>(ChannelAffine<T>{}, y, x, z, a, b, m, c));
    else
      launch_broadcast(stream(), strides_of(y, z, b, m, c),
                       operands<T, T, A, A, A>(ChannelAffine<T>{}, y, z, b, m, c));
  });
}

}  // namespace triax::cuda::TRIAX_TARGET
