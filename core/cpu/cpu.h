#pragma once
#include "triax/core/cpu/base.h"

// TRIAX_LEVEL (baseline, avx2, avx512) is given by the build: every file of core/cpu that includes
// this header is compiled once per instruction level, each into a namespace of its own, and
// levels.cpp picks one when the program starts. Inside such a file
//   * everything but the members of Cpu stands in an anonymous namespace;
//   * no inline function or template of another header is left standing as a symbol of its own
//     (tensors are taken by reference and only asked through tensor.h's out-of-line functions; no
//     std:: containers): the linker could pick that copy for a machine without the instructions.
// tests/core/levels_test.sh looks at the objects.

namespace triax::host::TRIAX_LEVEL {

class Cpu : public Base {
 public:
  ~Cpu() override;
  const char* name() const override;

  void copy(const Tensor& from, const Tensor& to) override;
  void fill(const Tensor& x, double value) override;
  void accumulate(const Tensor& from, const Tensor& to) override;
  void index_select(const Tensor& x, int dim, const Tensor& index, const Tensor& y) override;
  void index_add(const Tensor& dy, int dim, const Tensor& index, const Tensor& dx) override;
  void gather(const Tensor& x, const Tensor& index, const Tensor& y) override;
  void scatter_add(const Tensor& dy, const Tensor& index, const Tensor& dx) override;

  void unary(Unary op, const Tensor& x, const Tensor& y) override;
  void unary_backward(Unary op, const Tensor& x, const Tensor& y, const Tensor& dy,
                      const Tensor& dx, Write write) override;
  void binary(Binary op, const Tensor& a, const Tensor& b, const Tensor& y) override;
  void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) override;
  void dropout(const Tensor& x, const random::Mask& mask, const Tensor& y) override;

  void sum(const Tensor& x, const Tensor& y, Write write) override;
  void max(const Tensor& x, const Tensor& y) override;
  void squares(const Tensor& x, const Tensor& out) override;
  void accumulate_fixed(const Tensor& x, const FixedPoint& f, const Tensor& sums,
                        Write write) override;
  void squares_fixed(const Tensor& x, const Tensor& out) override;

  void matmul(const Matmul& p) override;

  void softmax(const Tensor& x, const Tensor& y) override;
  void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
  void log_softmax(const Tensor& x, const Tensor& y) override;
  void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override;
  void norm(const Norm& n, const Tensor& y) override;
  Tensor norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write write) override;
  void norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor& dgamma,
                             const Tensor& dbeta, Write write) override;

  void channel_sums(const Tensor& x, const Tensor& z, const Tensor& sums) override;
  void channel_affine(const Tensor& x, const Tensor& z, const Tensor& k, const Tensor& y) override;

  void embedding(const Tensor& ids, const Tensor& table, int64_t first, const Tensor& y) override;
  void embedding_backward(const Tensor& ids, const Tensor& dy, int64_t first, const Tensor& dtable,
                          Write write) override;
  void cross_entropy_stats(const CrossEntropy& c, const Tensor& stats) override;
  void cross_entropy_losses(const CrossEntropy& c, const Tensor& stats,
                            const Tensor& losses) override;
  void cross_entropy_backward(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                              const Tensor& dlogits) override;
  void attention(const Attention& a, const Tensor& y, const Tensor& lse) override;
  void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                          const Qkv& d) override;
  void rotary(const Rotary& r, const Tensor& y) override;

  void patches(const Tensor& x, const Windows& windows, const Tensor& y) override;
  void patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) override;
  void map_tiles(TileMap which, const Windows& w, const Tensor& from, const Tensor& to,
                 Write write) override;
  void pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) override;
  void pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen,
                     const Tensor& dx) override;

  void update(const OptimizerSlot& s, const Tensors& states, const UpdateRule& rule,
              const UpdateStep& o) override;
  void average(const Tensor& average, const Tensor& x, const AverageStep& o) override;
};

}  // namespace triax::host::TRIAX_LEVEL
