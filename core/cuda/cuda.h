#pragma once
#include <string>

#include "triax/core/backend.h"
#include "triax/core/cuda/runtime/launch.h"

namespace triax::cuda::TRIAX_TARGET {

/// The kernels of core/cuda/kernels behind core/backend.h. As `emulated` they run on tensors in
/// host memory, for tests.
class Cuda : public Backend {
 public:
  explicit Cuda(int index);
  ~Cuda() override;
  std::shared_ptr<Allocator> allocator() override;
  const char* name() const override;
  std::shared_ptr<Allocator> host_allocator() override;
  void transfer(const Tensor& from, const Tensor& to) override;
  std::unique_ptr<Mark> mark() override;
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;

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

  void matmul(const Matmul& p) override;
  void matmul_onto(const Matmul& p, const Tensor& rest) override;

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
  void cross_entropy_at_once(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                             const Tensor& dlogits) override;
  void attention(const Attention& a, const Tensor& y, const Tensor& lse) override;
  void attention_backward(const Attention& a, const Tensor& y, const Tensor& lse, const Tensor& dy,
                          const Qkv& d) override;

  void decide_step(const Tensor& request, const Tensor& totals, const Tensor& decision) override;
  void rotary(const Rotary& r, const Tensor& y) override;

  void patches(const Tensor& x, const Windows& windows, const Tensor& y) override;
  void patches_backward(const Tensor& dy, const Windows& windows, const Tensor& dx) override;
  void pool(const Pool2d& p, const Tensor& x, const Tensor& y, const Tensor& chosen) override;
  void pool_backward(const Pool2d& p, const Tensor& dy, const Tensor& chosen,
                     const Tensor& dx) override;

  void update(const OptimizerSlot& s, const Tensors& states, const UpdateRule& rule,
              const UpdateStep& o) override;
  void average(const Tensor& average, const Tensor& x, const AverageStep& o) override;

 private:
  /// Returns the calling thread's stream on this device, which becomes the current one.
  Stream stream() const;
  /// Returns the shift of masks' rows while a graph is captured, in device memory; else null.
  const int64_t* shifted_rows() const;
  /// copy() between tensors of this device.
  void copy_here(const Tensor& from, const Tensor& to);
  /// triax's own kernels: heads of up to 256 elements, any dtype, with dropout.
  void tiled_attention(const Attention& a, const Tensor& y, const Tensor& lse);
  void tiled_attention_backward(const Attention& a, const Tensor& y, const Tensor& lse,
                                const Tensor& dy, const Qkv& d);
  int index_;
  std::string name_;
};

}  // namespace triax::cuda::TRIAX_TARGET
