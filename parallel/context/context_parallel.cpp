#include "triax/parallel/context/context_parallel.h"

#include "triax/core/check.h"
#include "triax/parallel/context/forms.h"

namespace triax::parallel {

std::vector<nn::Span> zigzag(int ranks, int rank, int64_t mine) {
  if (ranks == 1) return {{0, mine}};
  check_input(mine % 2 == 0, Exit::config,
              "context parallel: {} rows of a sample on each of {} ranks; expected an even number",
              mine, ranks);
  int64_t chunk = mine / 2;
  return {{rank * chunk, chunk}, {(2 * ranks - 1 - rank) * chunk, chunk}};
}

nn::Batch rows_of_rank(const nn::Batch& batch, int ranks, int rank) {
  if (ranks == 1) return batch;
  NoGrad guard;
  int64_t all = batch.input.rank() > 1 ? batch.input.size(1) : 0;
  check_input(all > 0 && all % (2 * ranks) == 0, Exit::config,
              "cp={} with input {}; expected dim 1 to count rows of a sample, a multiple of {}\n"
              "  Take samples of such a length, or --cp 1.",
              ranks, batch.input, 2 * ranks);
  return nn::mapped(batch, [&](const Tensor& x) {
    check_input(
        x.rank() > 1 && x.size(1) == all, Exit::config,
        "cp={} with {} beside input {}; expected equally many rows in dim 1\n  Take --cp 1.", ranks,
        x, batch.input);
    Shape shape = x.shape();
    shape[1] = all / ranks;
    Tensor mine = empty(shape, x.dtype(), x.device());
    int64_t at = 0;
    for (const nn::Span& s : zigzag(ranks, rank, all / ranks)) {
      copy_(mine.narrow(1, at, s.count), x.narrow(1, s.first, s.count));
      at += s.count;
    }
    return mine;
  });
}

Tensor ContextParallel::attend(const Qkv& in, const AttentionShape& shape,
                               const random::Mask& mask) const {
  check(in.q.rank() == 4 && in.k.rank() == 4 && in.k.shape() == in.v.shape(),
        "context parallel: queries {}, keys {}, values {}; expected [tokens, kv_heads, group, "
        "head_dim] and keys and values with a group of 1",
        in.q.shape(), in.k.shape(), in.v.shape());
  check_input(shape.key_time == 0 || shape.key_time == shape.time, Exit::config,
              "cp={} with {} keys for {} queries of a sample here; expected equally many",
              cp_.size(), shape.key_time, shape.time);
  check_input(shape.window == 0 || form_ != ContextForm::ring, Exit::config,
              "cp={} with cp-form=ring and a window of {} keys\n  Of most keys that pass round "
              "no query sees any. Take --cp-form gather or heads.",
              cp_.size(), shape.window);
  if (cp_.size() == 1 && exact_.parts == 0) return attention(in.q, in.k, in.v, shape, mask);
  ContextRows rows{cp_, in.q.size(0) / shape.time, shape, mask, exact_};
  if (form_ == ContextForm::ring) return ring_attention(rows, in);
  return form_ == ContextForm::gather ? gather_attention(rows, in) : heads_attention(rows, in);
}

}  // namespace triax::parallel
