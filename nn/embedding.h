#pragma once
#include "triax/autograd/ops.h"
#include "triax/nn/module.h"

namespace triax::nn {

struct EmbeddingOptions {
  double std = 0.02;  ///< of the initial table
  Shard shard = {};   ///< the whole table; other tensor-parallel ranks may hold it too
};

/// Rows of a table [rows, width], picked by ids -> [ids.numel(), width].
class Embedding : public Module {
 public:
  Embedding(int64_t rows, int64_t width, const EmbeddingOptions& o = {})
      : table_(parameter({.name = "table",
                          .full = {rows, width},
                          .init = {.std = o.std},
                          .shard = o.shard,
                          .decay = true,
                          .table = true})) {}

  Tensor operator()(const Tensor& ids) const { return embedding(ids, table_); }

 private:
  Parameter& table_;
};

}  // namespace triax::nn
