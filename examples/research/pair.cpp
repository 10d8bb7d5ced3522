// A shard and a pair of ops of one's own: a linear layer whose output is gathered.
//   pair parity --mesh 2x2x2 --zero 1
#include "points.h"
#include "triax/core/check.h"

using namespace triax;
using parallel::TensorParallel;

/// All ranks have x, and use it for features of their own: the identity, whose backward sums the
/// parts of the gradient (Megatron's f).
Tensor spread(const TensorParallel& tp, const Tensor& x) {
  if (tp.size() == 1) return x;
  return record("spread", x.detach(), {x}, [tp](const Tensor& dy) {
    Tensor dx = clone(dy);
    tp.comm().all_reduce(dx).wait();
    return Tensors{dx};
  });
}

/// Each rank has some columns, [rows, n]: all of them, [rows, n tp]. All ranks go on alike, so each
/// has the whole gradient, and backward takes its columns.
Tensor gather_columns(const TensorParallel& tp, const Tensor& x) {
  if (tp.size() == 1) return x;
  int64_t rows = x.size(0), n = x.size(1);
  Tensor all = tp.comm().empty({tp.size(), rows, n}, x.dtype());
  tp.comm().all_gather(x.detach().contiguous(), all).wait();
  Tensor y = all.transpose(0, 1).contiguous().view({rows, tp.size() * n});
  return record("gather_columns", y, {x}, [tp, n](const Tensor& dy) {
    return Tensors{dy.narrow(1, tp.rank() * n, n).contiguous()};
  });
}

/// x w^T + b with the rows of w [out, in] split over the ranks, and all features on each rank.
struct GatheredLinear : nn::Linear {
  GatheredLinear(int64_t in, int64_t out, const TensorParallel& split)
      : nn::Linear(in, out, {.std = 0.2, .shard = split.shard(0, out)}), tp(split) {
    check_input(!tp.sequence() && !tp.sliced(), Exit::config,
                "GatheredLinear: sequence-parallel or tp-slices; expected all rows on every rank, "
                "and whole features\n  Leave both out.");
  }
  Tensor operator()(const Tensor& x) const {
    return gather_columns(tp, nn::Linear::operator()(spread(tp, x)));
  }
  TensorParallel tp;
};

struct GatheredBlock : nn::Module {
  GatheredBlock(int64_t width, const TensorParallel& tp)
      : up(child<GatheredLinear>("up", width, 4 * width, tp)),
        down(child<GatheredLinear>("down", 4 * width, width, tp)) {}
  Tensor operator()(const Tensor& x) const { return x + down(relu(up(x))); }
  GatheredLinear &up, &down;
};

int main(int argc, char** argv) {
  return parallel::program(argc, argv,
                           program_of<GatheredBlock>("pair", "Tries a layer that gathers."));
}
