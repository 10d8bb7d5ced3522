#pragma once
// What a program of this folder trains: sequences of words, read by attention.
#include "points.h"
#include "triax/core/random.h"
#include "triax/nn/key_value_cache.h"
#include "triax/parallel/tensor/norm.h"

constexpr int64_t word_count = 12, sentence = 16;

/// Sentences in which each word follows from the two before it, mostly.
inline std::shared_ptr<triax::nn::Samples> words(int64_t count, uint64_t key) {
  using namespace triax;
  std::vector<int32_t> in, next;
  for (uint64_t i = 0; i < uint64_t(count); ++i) {
    int32_t a = 0, b = int32_t(i % word_count);
    for (uint64_t t = 0; t < uint64_t(sentence); ++t) {
      bool free = random::uniform(key, i, t) < 0.2;
      int32_t c = int32_t((free ? random::philox(key, i, t).x : uint32_t(a + 2 * b)) % word_count);
      in.push_back(b), next.push_back(c), a = b, b = c;
    }
  }
  return std::make_shared<nn::TensorSamples>(from_host(in, {count, sentence}, cpu),
                                             from_host(next, {count, sentence}, cpu));
}

/// x + attention(norm(x)), its heads split over tensor-parallel ranks.
struct Attention : triax::nn::Module {
  using Split = triax::parallel::SplitLinearOptions;
  explicit Attention(const triax::parallel::TensorParallel& tp)
      : heads(8 / tp.size()),
        norm(child<triax::parallel::RmsNorm>("norm", 32, tp)),
        qkv(child<triax::parallel::ColumnLinear>("qkv", 32, 96, tp, Split{.std = 0.2, .unit = 12})),
        out(child<triax::parallel::RowLinear>("out", 32, 32, tp, Split{.std = 0.1})) {}
  triax::Tensor operator()(const triax::Tensor& x, const triax::nn::Batch& batch) const {
    auto in = split(view(qkv(norm(x)), {-1, heads, 3, 4}), 2, {1, 1, 1});
    return out.onto(x, triax::nn::attend(*this, batch, {in[0], in[1], in[2]}));
  }
  int64_t heads;
  triax::parallel::RmsNorm& norm;
  triax::parallel::ColumnLinear& qkv;
  triax::parallel::RowLinear& out;
};

/// Four such layers between words and the next ones.
struct Reader : triax::nn::Sequence {
  explicit Reader(const triax::parallel::TensorParallel& tp) {
    add<triax::parallel::TokenLayer>("words", word_count, 32, tp,
                                     triax::parallel::VocabularyOptions{.std = 1});
    for (int i = 0; i < 4; ++i) add<Attention>("reader" + std::to_string(i), tp);
    add<triax::parallel::ClassHead>("head", word_count, 32, tp);
  }
};
