#pragma once
#include <functional>
#include <memory>
#include <variant>

#include "triax/core/functors/list.h"
#include "triax/core/numbers/fixed_point.h"
#include "triax/core/numbers/update.h"
#include "triax/core/random.h"
#include "triax/core/tensor.h"

namespace triax {

/// Whether a kernel overwrites its output or adds to it.
enum class Write { set, add };
/// Calls `f.operator()<write>()`.
template <class F> inline __attribute__((always_inline)) void visit_write(Write write, F&& f) {
  if (write == Write::add) f.template operator()<Write::add>();
  else f.template operator()<Write::set>();
}

/// c = a b, or c += a b. a [.., m, k], b [.., k, n], c [.., m, n]: any strides with a unit stride
/// in one of the last two dims, equal batch dims (expand() stretches one). a and b have one float
/// dtype; c has it too or is of the accumulator dtype. Sums are made in f32 (f64 for f64). Bits
/// repeat; where a library multiplies (f16, bf16 with AMX), for an equal number of threads only. On
/// CPUs a product may be cut into parts at multiples of `block` rows or columns: no bit changes.
///
/// Forward: `bias` [n] is added; with `before` [m, n] the sum goes there and c = gelu(before). Both
/// are of a's dtype.
///
/// Backward, without bias, before and batch dims: with `gelu_of` [m, n], a b is multiplied by
/// gelu's slope there (gelu_of and c contiguous, of a's dtype). `row_sums` [m], contiguous, of c's
/// dtype, = or += the sums of a's rows; a is then the transpose of a contiguous matrix.
///
/// Fixed point, with nothing else but batch dims: with `rounding`, c (f64) = or += each sum,
/// rounded and refused as by accumulate_fixed(). c is contiguous, perhaps with its first two dims
/// exchanged, or one matrix stretched over the batch [b, m, n]: the sum of all products.
struct Matmul {
  static constexpr int64_t block = 32;
  Tensor a, b, c;
  Write write = Write::set;
  Tensor bias = {}, before = {};
  Tensor gelu_of = {}, row_sums = {};
  const FixedPoint* rounding = nullptr;
  /// True if the product has one of the extras of a backward pass.
  bool has_backward_extras() const { return gelu_of.defined() || row_sums.defined() || rounding; }
  /// True if the products of the whole batch are added up in one c.
  bool adds_up() const { return rounding && c.rank() == 3 && c.size(0) > 1 && c.strides()[0] == 0; }
};

/// Layer norm over rows of x [rows, width]; without mean it is RMS norm (and has no beta). gamma,
/// beta [width] as x; mean, rstd [rows] in x's accumulator dtype. `parts`: the result of
/// norm_backward(), for norm_backward_weights().
struct Norm {
  Tensor x, gamma, beta, mean, rstd;
  double eps;
  Tensor parts = {};
};

struct Attention;  // core/shared/attention.h
struct Qkv;
struct Conv2d;  // core/shared/conv.h
struct Pool2d;
struct Windows;

/// Rotary position embedding (Su et al. 2021, section 3.4) of x [tokens, groups, heads, head_dim],
/// any strides but 1 of the last dim. Each pair of features turns by an angle given by its token's
/// position and its place in the head; token t stands at position t % time. `table` f32 [positions,
/// head_dim], contiguous: the cosines of the head_dim / 2 angles, then their sines.
struct Rotary {
  Tensor x, table;
  int64_t time;
  enum class Pairs {
    halves,     ///< feature i with i + head_dim / 2, as Llama and GPT-NeoX have them
    neighbours  ///< 2 i with 2 i + 1, as in the paper and GPT-J
  } pairs = Pairs::halves;
  enum class Turn { forth, back } turn = Turn::forth;  ///< back: the gradient of forth
};

/// logits [rows, columns], a slice of the vocabulary starting at `first`; columns at and past
/// `vocab` (counted from 0 of the whole vocabulary) are padding. targets [rows], i32 or i64, of the
/// whole vocabulary; rows with `ignore` do not count. Per row `stats` [rows, 4] (accumulator dtype)
/// holds: largest logit, sum of exp(logit - largest), the target's logit (0 if another slice has
/// it), sum of the logits. The caller combines slices.
struct CrossEntropy {
  Tensor logits, targets;
  int64_t first = 0, vocab = 0, ignore = -1;
  double smoothing = 0;
};

/// Elements [begin, end) of a flat slot.
struct Range {
  int64_t begin, end;
};

/// Flat, contiguous buffers of equal length. grad is in the accumulator dtype. weight f32, f64
/// (master undefined) or f16, bf16 (then `master` f32 is updated and weight is its cast). Weight
/// decay applies in `decayed` only (sorted).
struct OptimizerSlot {
  Tensor weight, grad, master;
  std::vector<Range> decayed;
};
/// Adam with decoupled weight decay (Loshchilov and Hutter 2019, algorithm 2). States: m, v.
struct AdamWRule {
  double beta1, beta2, eps, weight_decay;
};
/// Momentum as in Sutskever et al. 2013, in PyTorch's form: v = momentum v + g; w -= lr v
/// (Nesterov: w -= lr (g + momentum v)). The first step sets v = g. States: v, or none without
/// momentum.
struct SgdRule {
  double momentum = 0, weight_decay = 0;
  enum class Form { heavy_ball, nesterov } form = Form::heavy_ball;
};
/// Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023, algorithm 2):
/// w -= lr (sign(beta1 m + (1 - beta1) g) + weight_decay w), then m = beta2 m + (1 - beta2) g.
/// States: m.
struct LionRule {
  double beta1 = 0.9, beta2 = 0.99, weight_decay = 0.1;
};
using UpdateRule = std::variant<AdamWRule, SgdRule, LionRule>;
/// The numbers of one update. Gradients are multiplied by `grad_scale` first; `step` counts from 1.
/// A `decision` (a StepDecision on this device) replaces them all.
struct UpdateStep {
  double lr = 0, grad_scale = 1;
  int64_t step = 1;
  Tensor decision = {};
};

/// One step of an exponential moving average: average += rate (scale x - average). With a
/// `decision` (a StepDecision on this device) nothing changes unless that step happens.
struct AverageStep {
  double rate, scale = 1;
  Tensor decision = {};
};

/// A point in a device's queue of work.
class Mark {
 public:
  virtual ~Mark();
  virtual bool reached() const = 0;
  /// Makes the host wait. Throws Error 70 if work before it failed.
  virtual void wait() const = 0;
};

/// Work captured once (such as a CUDA graph), which a single launch replays.
class Graph {
 public:
  virtual ~Graph();
  /// Queues it, with the rows of every dropout mask moved on by `rows` since it was captured.
  virtual void launch(int64_t rows) = 0;
};

/// The operations of a device. Ops validate; kernels trust: tensors lie on this device, are
/// contiguous unless said otherwise, have fitting shapes, and outputs never overlap inputs unless
/// they are the same tensor in an elementwise kernel. Kernels take all float dtypes.
class Backend {
 public:
  virtual ~Backend();
  virtual std::shared_ptr<Allocator> allocator() = 0;
  /// Returns a short text for start-up messages: device and instruction level.
  virtual const char* name() const = 0;

  // -- Between host and device. What the device is given to do it may do later, in order; only
  //    these and item(), to(cpu) and to_host() of a tensor let the host wait.
  /// Returns an allocator of host memory that the device accesses itself: its tensors are on `cpu`.
  virtual std::shared_ptr<Allocator> host_allocator();
  /// Queues a copy of bytes from or to such memory: contiguous, of one dtype and shape. The host
  /// may touch neither until a mark() behind it is reached; the tensors may be dropped at once.
  virtual void transfer(const Tensor& from, const Tensor& to);
  /// Returns a mark behind all that this thread has queued; null where nothing is ever queued.
  virtual std::unique_ptr<Mark> mark();
  /// Captures what `work` queues from this thread instead of running it, with the addresses and
  /// numbers given: every launch() reads and writes tensors made before it again; those made in it
  /// must live as long as the graph. `work` must not wait for the device or copy from the host, and
  /// should have run once before. Drop the graph before the communicators whose transfers it holds.
  /// Throws Error 70 if it cannot be captured, 78 on devices without graphs.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work);

  // -- Movement. Any strides here.
  /// Converts dtypes. One side may be on another device: from.device() is the source's.
  virtual void copy(const Tensor& from, const Tensor& to) = 0;
  virtual void fill(const Tensor& x, double value) = 0;
  /// to += from; contiguous, float dtypes may differ.
  virtual void accumulate(const Tensor& from, const Tensor& to) = 0;
  /// y[.., i, ..] = x[.., index[i], ..] along `dim`; index [n], i32 or i64.
  virtual void index_select(const Tensor& x, int dim, const Tensor& index, const Tensor& y) = 0;
  /// dx[.., index[i], ..] += dy[.., i, ..].
  virtual void index_add(const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) = 0;
  /// y[i][j] = x[i][index[i][j]] over rows of the last dim (torch.gather on the last dim).
  virtual void gather(const Tensor& x, const Tensor& index, const Tensor& y) = 0;
  virtual void scatter_add(const Tensor& dy, const Tensor& index, const Tensor& dx) = 0;

  // -- Elementwise. a and b may have any strides (expanded to y's shape), the rest is contiguous.
  virtual void unary(Unary op, const Tensor& x, const Tensor& y) = 0;
  /// dx = dy * slope(x, y), or +=; with `set`, dx may be dy.
  virtual void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                              const Tensor& dx, Write write) = 0;
  virtual void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  /// y = mask ? a : b; mask u8. All three inputs may be expanded.
  virtual void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  /// y = x * mask over rows of [rows, width]; its own backward.
  virtual void dropout(const Tensor& x, const random::Mask& mask, const Tensor& y) = 0;

  // -- Reductions. y has x's rank; where its size is 1 and x's is not, that dim is reduced.
  /// y may be of the accumulator dtype.
  virtual void sum(const Tensor& x, const Tensor& y, Write write) = 0;
  virtual void max(const Tensor& x, const Tensor& y) = 0;
  /// out (f64 [2]) += {sum of squares, number of non-finite elements}.
  virtual void squares(const Tensor& x, const Tensor& out) = 0;
  /// sums (f64) = or += x, each element rounded (core/numbers/fixed_point.h). x may be several such
  /// terms [n, shape of sums]. Contiguous. This and the next throw Error 78 on devices without
  /// them.
  virtual void accumulate_fixed(const Tensor& x, const FixedPoint& f, const Tensor& sums,
                                Write write);
  /// out (f64 [WideSum::words + 1]) += {sum of squares as a WideSum, number of elements that are
  /// not finite or whose square is too large for one}: the bits are equal however a tensor is cut.
  virtual void squares_fixed(const Tensor& x, const Tensor& out);

  // -- Products.
  virtual void matmul(const Matmul& p) = 0;
  /// p.c = a b + rest, with p.bias if it has one, and nothing else. rest: contiguous, of c's shape
  /// and dtype, not c itself. Where it is one pass, the result is rounded once.
  virtual void matmul_onto(const Matmul& p, const Tensor& rest);

  // -- Rows: over the last dim of [rows, width].
  virtual void softmax(const Tensor& x, const Tensor& y) = 0;
  virtual void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;
  virtual void log_softmax(const Tensor& x, const Tensor& y) = 0;
  virtual void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;
  virtual void norm(const Norm& n, const Tensor& y) = 0;
  /// Returns parts of the weights' gradients if it makes them in the same pass, else undefined.
  virtual Tensor norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) = 0;
  /// dgamma, dbeta in the accumulator dtype; dbeta undefined for RMS norm. Does not read gamma and
  /// beta, which may be undefined; with n.parts it reads nothing else.
  virtual void norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                                     const Tensor& dbeta, Write write) = 0;

  // -- Channels: columns of [rows, channels].
  /// sums (f64 [2, channels]) = {sum of x, sum of x z} over the rows.
  virtual void channel_sums(const Tensor& x, const Tensor& z, const Tensor& sums) = 0;
  /// y = a x + b (z - m) + c; k [4, channels] in the accumulator dtype: a, b, m, c. x may be
  /// undefined: y = b (z - m) + c. y may be x or z.
  virtual void channel_affine(const Tensor& x, const Tensor& z, const Tensor& k,
                              const Tensor& y) = 0;

  // -- Tokens.
  /// y[i] = table[ids[i] - first], zeros where the table does not have that row. ids i32 or i64.
  virtual void embedding(const Tensor& ids, const Tensor& table, int64_t first,
                         const Tensor& y) = 0;
  /// dtable[ids[i] - first] += dy[i], each row summed in the order of i (by a GPU, of more than 256
  /// tokens in pieces of as many). `set` zeroes it first.
  virtual void embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first,
                                  const Tensor& dtable, Write write) = 0;
  virtual void cross_entropy_stats(const CrossEntropy& c, const Tensor& stats) = 0;
  /// losses [rows] from combined stats, accumulator dtype; 0 for ignored rows.
  virtual void cross_entropy_losses(const CrossEntropy& c, const Tensor& stats,
                                    const Tensor& losses) = 0;
  /// dlogits = scale[0] * (softmax - smoothed target); may be c.logits itself. scale: accumulator.
  virtual void cross_entropy_backward(const CrossEntropy& c, const Tensor& stats,
                                      const Tensor& scale, const Tensor& dlogits) = 0;
  /// Makes the stats of this slice alone and dlogits from them, reading the logits once.
  virtual void cross_entropy_at_once(const CrossEntropy& c, const Tensor& stats,
                                     const Tensor& scale, const Tensor& dlogits);
  /// y [tokens, heads * head_dim]; lse [tokens, heads]: log of the sum of exponentials of each
  /// query's scaled scores (accumulator dtype).
  virtual void attention(const Attention& a, const Tensor& y, const Tensor& lse) = 0;
  /// Writes every element of d.
  virtual void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                  const Tensor& dy, const Qkv& d) = 0;

  /// y contiguous, of x's shape and dtype.
  virtual void rotary(const Rotary& r, const Tensor& y) = 0;

  // -- Images.
  /// y [n * oh * ow, kh * kw * c]: the elements of x in each window, 0 in the padding. x [n, h, w,
  /// c] may have any strides but 1 of the last dim.
  virtual void patches(const Tensor& x, const Windows& windows, const Tensor& y) = 0;
  /// dx, with x's strides: for each element the sum over the windows that read it.
  virtual void patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) = 0;
  /// Made of patches and products unless a backend overrides it. dw in the accumulator dtype.
  virtual void conv2d(const Conv2d& c, const Tensor& y);
  virtual void conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx);
  virtual void conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                                      Write write);
  /// `chosen`, of y's shape, i32: the element of the window that is largest; undefined for means.
  virtual void pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) = 0;
  virtual void pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen,
                             const Tensor& dx) = 0;

  // -- Optimizer.
  /// decision = fn::decide_step(request, totals, decision): a StepRequest, StepTotals and a
  /// StepDecision.
  virtual void decide_step(const Tensor& request, const Tensor& totals, const Tensor& decision);
  /// Updates weights and `states`, which are the rule's.
  virtual void update(const OptimizerSlot& s, const Tensors& states, const UpdateRule& rule,
                      const UpdateStep& step) = 0;
  /// `average` is of x's accumulator dtype.
  virtual void average(const Tensor& average, const Tensor& x, const AverageStep& o) = 0;
};

/// Makes a product with backward's extras by single steps: sum(), matmul(), unary_backward(),
/// accumulate_fixed().
void matmul_in_steps(Backend& on, const Matmul& p);
/// Makes a product that is to be rounded by product(parts), in the accumulator dtype, and
/// accumulate_fixed(). An element's bits must not depend on how many rows and columns there are: it
/// may be a part of more.
void round_product(Backend& on, const Matmul& p,
                   const std::function<void(const Matmul& parts)>& product);

/// Returns the backend of a device, made at first use. Throws Error 78 without such a device.
Backend& backend(Device device);
inline Backend& backend(const Tensor& x) { return backend(x.device()); }

/// Frees cached blocks that nobody uses (all devices, this thread's pool).
void trim_memory();

}  // namespace triax
