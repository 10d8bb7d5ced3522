// Context parallelism of one's own: the rows of each sample, in plain order, on the ranks of an
// axis; attention exchanges rows for heads by all-to-all (Jacobs et al., "DeepSpeed Ulysses",
// 2023).
//   swap parity --mesh 2x1x2 --rows 2
#include "words.h"

using namespace triax;
using namespace triax::parallel;

/// Exchanges x [outer][ranks][inner] -> the same of all ranks: slice r goes to rank r.
Tensor exchanged(Communicator& ranks, const Tensor& x) {
  auto move = [&ranks](const Tensor& from) {
    Tensor mine = from.detach().contiguous(), all = empty_like(mine);
    ranks.all_to_all(mine, all).wait();
    return all;
  };
  return record("exchange", move(x), {x}, [move](const Tensor& dy) { return Tensors{move(dy)}; });
}

class Swap final : public nn::RowRanks {
 public:
  explicit Swap(Communicator& ranks) : ranks_(ranks) {}
  int64_t count() const override { return ranks_.size(); }
  std::vector<nn::Span> spans(int64_t mine) const override {
    return {{ranks_.rank() * mine, mine}};
  }
  void sum(const Tensor& x) const override { ranks_.all_reduce(x).wait(); }
  Tensor attend(const Qkv& in, const AttentionShape& shape, const random::Mask&) const override {
    int64_t n = count(), mine = shape.time, samples = in.q.size(0) / mine;
    auto by_heads = [&](const Tensor& x) {  // [tokens, heads, ..] -> all rows of some heads
      Tensor heads = permute(reshape(x, {samples, mine, n, -1}), {2, 0, 1, 3});
      Tensor all = permute(exchanged(ranks_, contiguous(heads)), {1, 0, 2, 3});
      return reshape(all, {samples * n * mine, x.size(1) / n, x.size(2), x.size(3)});
    };
    AttentionShape whole = shape;
    whole.time = n * mine;
    Tensor y = attention(by_heads(in.q), by_heads(in.k), by_heads(in.v), whole);
    Tensor back = permute(reshape(y, {samples, n, mine, -1}), {1, 0, 2, 3});
    Tensor rows = permute(exchanged(ranks_, contiguous(back)), {1, 2, 0, 3});
    return reshape(rows, {samples * mine, -1});
  }

 private:
  Communicator& ranks_;
};

nn::Batch rows_of(const nn::Batch& batch, int ranks, int rank) {
  return nn::mapped(batch, [&](const Tensor& x) {
    int64_t mine = x.size(1) / ranks;
    return x.narrow(1, rank * mine, mine).contiguous();
  });
}

int main(int argc, char** argv) {
  ProgramOptions o = program_of<>("swap", "Tries context parallelism by all-to-all.");
  o.train.step.add_axis({.name = "rows",
                         .help = "ranks that share the rows of each sample",
                         .cuts = Cuts::rows,
                         .share = rows_of,
                         .rows = [](auto& ranks) { return std::make_unique<Swap>(ranks); }});
  o.task = [] {
    return Task{.build = [](auto& tp) { return std::make_unique<Reader>(tp); },
                .samples = words(500, 1),
                .held_out = words(50, 2)};
  };
  return program(argc, argv, o);
}
