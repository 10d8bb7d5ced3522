#pragma once
#include <array>
#include <functional>
#include <vector>

#include "triax/autograd/record.h"

// THE list of differentiable ops. Unless said otherwise: float tensors of any strides, all of one
// dtype and on one device (no promotion: cast is explicit), results contiguous and new; wrong
// shapes, dtypes and devices throw Error 70. `dim` may be negative, counting from the end.

namespace triax {

using Dims = std::vector<int>;
enum class Keep { no, yes };  ///< whether reduced dims are kept, with size 1

// -- Elementwise, two operands: shapes broadcast, gradients are summed back. A product with a
// number that 16 bits cannot hold is made in the accumulator dtype.
Tensor operator+(const Tensor& a, const Tensor& b);
Tensor operator-(const Tensor& a, const Tensor& b);
Tensor operator*(const Tensor& a, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
Tensor operator+(const Tensor& a, double b);
Tensor operator-(const Tensor& a, double b);
Tensor operator*(const Tensor& a, double b);
Tensor operator/(const Tensor& a, double b);
Tensor operator+(double a, const Tensor& b);
Tensor operator-(double a, const Tensor& b);
Tensor operator*(double a, const Tensor& b);
Tensor operator/(double a, const Tensor& b);

// -- Comparisons: u8 masks, 1 where it holds, else 0; 0 of any NaN. Without gradient. Operands
// broadcast; they may also both hold integers, which are compared in f64.
Tensor operator<(const Tensor& a, const Tensor& b);
Tensor operator>(const Tensor& a, const Tensor& b);
Tensor operator<(const Tensor& a, double b);
Tensor operator>(const Tensor& a, double b);
Tensor equal(const Tensor& a, const Tensor& b);
Tensor equal(const Tensor& a, double b);

// -- Elementwise, one operand.
Tensor operator-(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor abs(const Tensor& x);   ///< slope 0 at 0
Tensor relu(const Tensor& x);  ///< slope 0 at 0
/// ln(1 + e^x), without overflow: softplus(x) - y * x is the binary cross-entropy of logits x.
Tensor softplus(const Tensor& x);
/// x Phi(x) by the tanh formula, as GPT-2 has it (Hendrycks and Gimpel 2016, section 2).
Tensor gelu(const Tensor& x);
/// x Phi(x) with the error function.
Tensor gelu_erf(const Tensor& x);
Tensor silu(const Tensor& x);  ///< x sigmoid(x)

/// silu(gate) * up, of equal shapes (Shazeer, "GLU variants improve Transformer", 2020).
Tensor swiglu(const Tensor& gate, const Tensor& up);

/// mask ? a : b. mask u8; all three broadcast.
Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b);
/// x with `value` where mask (u8, broadcast to x's shape) is not 0.
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);
/// x [rows, width] with the elements that `mask` drops set to 0, the others times 1 / (1 - p)
/// (Srivastava et al. 2014). mask.p 0 returns x. Throws unless 0 <= p < 1.
Tensor dropout(const Tensor& x, const random::Mask& mask);
/// x in another float dtype. x may hold integers; if it is float, its gradient has x's dtype.
Tensor cast(const Tensor& x, DType dtype);
/// Copies x to another device, so that layers of one process can be on several; returns x itself if
/// it is there already. The gradient goes back to x's device.
Tensor move_to(const Tensor& x, Device device);

// -- Reductions over `dims` (none given: all). Sums are made in the accumulator dtype.
Tensor sum(const Tensor& x, const Dims& dims = {}, Keep keep = Keep::no);
/// The sum / the number of elements, rounded once: no sum of f16 overflows before the division.
Tensor mean(const Tensor& x, const Dims& dims = {}, Keep keep = Keep::no);
/// Equal largest elements share the gradient.
Tensor max(const Tensor& x, const Dims& dims = {}, Keep keep = Keep::no);

// -- Products.
/// [.., m, k] x [.., k, n] -> [.., m, n]; batch dims broadcast.
Tensor matmul(const Tensor& a, const Tensor& b);
/// x w^T + b: x [rows, in], w [out, in], b [out] or undefined -> [rows, out].
Tensor linear(const Tensor& x, const Tensor& w, const Tensor& b = {});
/// rest + linear(x, w, b), in one pass where the device can: rest [rows, out].
Tensor linear_onto(const Tensor& rest, const Tensor& x, const Tensor& w, const Tensor& b = {});
/// x w^T to `y` [rows, out], of x's dtype, of its accumulator's or on a grid, so that it can be
/// added to other parts of a sum before it is rounded. The gradient of the result, y.to, comes in
/// x's dtype.
Tensor linear_to(const Sums& y, const Tensor& x, const Tensor& w);
/// gelu(linear(x, w, b)) in one pass.
Tensor linear_gelu(const Tensor& x, const Tensor& w, const Tensor& b);

// -- Shape. transpose, permute, view, narrow and expand copy nothing; the result may be a strided
// view.
Tensor transpose(const Tensor& x, int dim0, int dim1);
/// Dim i of the result is dim order[i] of x; each once.
Tensor permute(const Tensor& x, const Dims& order);
/// Returns x itself if it is row-major without gaps, else a copy that is.
Tensor contiguous(const Tensor& x);
/// One size may be -1. x must be contiguous.
Tensor view(const Tensor& x, const Shape& shape);
/// view(contiguous(x), shape)
Tensor reshape(const Tensor& x, const Shape& shape);
/// Elements [begin, begin + length) of `dim`.
Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t length);
/// Views of neighbouring parts of `dim`, whose lengths add up to its size. Backward lays their
/// gradients into one tensor.
Tensors split(const Tensor& x, int dim, const std::vector<int64_t>& lengths);
/// Stretches sizes of 1 and adds dims in front.
Tensor expand(const Tensor& x, const Shape& shape);
/// Joins along an existing dim; all other sizes equal. A braced list has no type by which a call
/// outside of namespace triax could find this: concat(Tensors{a, b}, 0), or `using triax::concat`.
Tensor concat(const Tensors& xs, int dim);
/// Joins tensors along a new dim; all shapes equal. Called as concat() is.
Tensor stack(const Tensors& xs, int dim);
/// The number of elements added in front of and behind those of a dim.
struct Padding {
  int dim;
  int64_t before = 0, after = 0;
};
/// x surrounded by `value`, of any dtype. Backward returns the gradient's part that lies over x.
Tensor pad(const Tensor& x, const std::vector<Padding>& paddings, double value = 0);

// -- Indexing. Index tensors are i32 or i64; Error 65 names a value out of range and its position.
// Checking a GPU's index makes the host wait, so there embedding and cross_entropy do not check:
// such an id has a row of zeros, the logit of such a target counts as 0. index_select and gather
// also take an index on the CPU, which is checked there, without a wait.
/// y[.., i, ..] = x[.., index[i], ..] along `dim`; index [n].
Tensor index_select(const Tensor& x, int dim, const Tensor& index);
/// y[i][j] = x[i][index[i][j]] on the last dim: x [.., n], index [.., m] -> [.., m].
Tensor gather(const Tensor& x, const Tensor& index);
/// The slice of a vocabulary that a table or logits hold when ranks share it. Rows or columns past
/// the vocabulary's end are padding: never picked, never part of a softmax, without gradient.
struct VocabularySlice {
  int64_t first = 0;  ///< id of row or column 0
  int64_t all = -1;   ///< ids of the whole vocabulary; -1: the slice is the whole
};
/// Rows of `table` [vocabulary, width] for ids of any shape -> [ids.numel(), width]. Ids of other
/// slices give rows of zeros.
Tensor embedding(const Tensor& ids, const Tensor& table, const VocabularySlice& slice = {});

// -- Mixtures of experts. All but grouped_linear and attach_loss wait for the device.
/// Columns i32 [rows, k] of the k largest of each row of x [rows, n], the largest first, of equal
/// ones the first column; NaN counts as the least. Without gradient: gather(x, top_k(x, k)) has
/// one.
Tensor top_k(const Tensor& x, int64_t k);
/// Entries of an index that belong together, such as the rows that chose one expert.
struct Grouping {
  Tensor order;                 ///< i32: entries group by group, each group in their order
  Tensor place;                 ///< i32: the place of each entry in `order`
  std::vector<int64_t> counts;  ///< the number in each group
};
/// The grouping of index (i32, values below `groups`), its entries counted row by row. On the meta
/// device all groups are of one size.
Grouping grouped(const Tensor& index, int64_t groups);
/// Neighbouring rows that use one of several weights.
struct Stretch {
  int64_t weight, rows;
};
/// x w[e]^T of stretches of x [rows, in], one behind the other: w [weights, out, in] -> [rows,
/// out]. The gradient of a weight without rows is 0. Where gradients are summed in fixed point each
/// stretch's part is rounded by itself.
Tensor grouped_linear(const Tensor& x, const Tensor& w, const std::vector<Stretch>& stretches);
/// y itself, in whose backward `loss`, one element, starts from the gradient `seed`: how a layer in
/// the middle of a model adds to the loss (nn::Batch::loss_seed). With seed 0 nothing is added.
Tensor attach_loss(const Tensor& y, const Tensor& loss, double seed);

// -- Rows: along the last dim.
Tensor softmax(const Tensor& x);
Tensor log_softmax(const Tensor& x);
/// (x - mean) / sqrt(var + eps) * gamma + beta (Ba et al. 2016); gamma, beta [width].
Tensor layer_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta, double eps = 1e-5);
/// x / sqrt(mean(x^2) + eps) * gamma (Zhang and Sennrich 2019).
Tensor rms_norm(const Tensor& x, const Tensor& gamma, double eps = 1e-5);

/// The rows over which batch_norm takes its statistics.
struct BatchNormShape {
  double eps = 1e-5;   ///< added to the variance, > 0
  int64_t groups = 1;  ///< of neighbouring rows, each normalised by its own statistics
  /// The number of ranks with equal parts of one group (SyncBN), over which `sum_over_ranks` sums
  /// in place, in forward and backward, on all of them alike. More than one rank: one group.
  int64_t ranks = 1;
  std::function<void(const Tensor& sums)> sum_over_ranks = {};
};
/// The result and the statistics it was normalised by: f64 [groups, channels], without history; the
/// variance is divided by the number of rows.
struct BatchNormed {
  Tensor y, mean, variance;
};
/// The statistics that batch_norm_with normalises by.
struct BatchMoments {
  Tensor mean, variance;
  double eps = 1e-5;
};
/// (x - mean) / sqrt(variance + eps) * gamma + beta with the mean and the variance of each channel
/// over all rows (Ioffe and Szegedy 2015, algorithm 1). x [.., channels]; gamma, beta [channels].
/// Sums are made in f64. Backward goes through mean and variance.
BatchNormed batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchNormShape& shape = {});
/// Normalises by a given mean and variance [channels] of any float dtype, as evaluation does.
Tensor batch_norm_with(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                       const BatchMoments& moments);

// -- Images: [n, height, width, channels], channels last.
/// The geometry of windows on an image, down and across.
struct WindowShape {
  std::array<int64_t, 2> stride{0, 0};    ///< both 0: 1 for convolutions, the window for pools
  std::array<int64_t, 2> padding{0, 0};   ///< on both sides
  std::array<int64_t, 2> dilation{1, 1};  ///< elements from one of a window to the next
};
struct ConvShape {
  WindowShape windows = {};
  int64_t groups = 1;  ///< groups of channels that see each other; as many as channels: depthwise
};
/// Cross-correlation: x [n, h, w, in], weight [out, kh, kw, in / groups] -> [n, oh, ow, out], oh =
/// (h + 2 padding - dilation (kh - 1) - 1) / stride + 1. permute(0, 2, 3, 1) makes this weight of
/// PyTorch's [out, in / groups, kh, kw].
Tensor conv2d(const Tensor& x, const Tensor& weight, const ConvShape& shape = {});
/// The largest element of each window, never padding; the first of equal ones gets the gradient.
/// Padding of pools: at most half a window.
Tensor max_pool2d(const Tensor& x, std::array<int64_t, 2> window, const WindowShape& shape = {});
/// The mean of each window, in which padding counts as zeros.
Tensor avg_pool2d(const Tensor& x, std::array<int64_t, 2> window, const WindowShape& shape = {});

// -- Attention and losses.
/// The sequences that the tokens form, each of `time` queries and `key_time` keys.
struct AttentionShape {
  int64_t time;
  int64_t key_time = 0;  ///< 0: time; another length is cross attention
  bool causal = true;    ///< no query sees a later key; the last query stands at the last key
  int64_t window = 0;    ///< causal: a query sees the last `window` keys, its own too; 0: all
};
/// softmax(q k^T / sqrt(head_dim)) v (Vaswani et al. 2017) -> [tokens, heads * head_dim], without
/// ever storing time x time (Dao et al. 2022). q [tokens, heads, head_dim], k and v [key tokens,
/// kv_heads, head_dim]; query head h reads key-value head h / (heads / kv_heads). Or q [tokens,
/// kv_heads, group, head_dim] and k, v [key tokens, kv_heads, 1, head_dim], as narrow() takes them
/// from a projection. Views are read where they lie if their last stride is 1. `mask` drops
/// weights: its columns count head * key_time + key.
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionShape& shape,
                 const random::Mask& mask = {});
/// Attention for one projection qkv [tokens, kv_heads, group + 2, head_dim]: each key-value head
/// has the queries that read it, its key and its value. The gradient is one tensor too.
Tensor attention(const Tensor& qkv, const AttentionShape& shape, const random::Mask& mask = {});

/// Rotary position embedding (Su et al. 2021): x [tokens, .., head_dim] with up to 4 dims, whole
/// sequences of `time` tokens; table as Rotary (core/backend.h) has it:
/// nn::RotaryEmbedding makes one.
struct RotaryShape {
  int64_t time;
  Rotary::Pairs pairs = Rotary::Pairs::halves;
};
Tensor rotary(const Tensor& x, const Tensor& table, const RotaryShape& shape);

struct CrossEntropyOptions {
  enum class Reduction { mean, sum } reduction = Reduction::mean;
  int64_t ignore = -1;   ///< rows with this target do not count
  double smoothing = 0;  ///< label smoothing (Szegedy et al. 2016, section 7), in [0, 1)
  VocabularySlice slice = {};
  int64_t parts = 1;  ///< equal parts of the columns, each with statistics of its own
  /// Combines the statistics [parts, rows, 4] of this slice (core/backend.h) into those of the
  /// whole vocabulary [rows, 4].
  std::function<Tensor(const Tensor& stats)> combine = {};
  /// The very tensor that backward will start this loss from, where it is known. Without parts and
  /// combine the gradient is then made in forward, over logits that nobody else holds. If backward
  /// starts from another one after all, it multiplies by their ratio: rounded twice, f16 has lost
  /// what underflowed at the seed, and the seed must not be 0.
  Tensor seed = {};
};
/// Negative log-likelihood of targets [rows] (i32 or i64) under softmax(logits [rows, classes]),
/// one element in the accumulator dtype. `mean` divides by the rows that count; 0 if none does.
/// The gradient is written over the logits if they were moved in and nobody else holds them.
Tensor cross_entropy(Tensor logits, const Tensor& targets, const CrossEntropyOptions& options = {});
/// Mean of (x - y)^2.
Tensor mse(const Tensor& x, const Tensor& y);

}  // namespace triax
