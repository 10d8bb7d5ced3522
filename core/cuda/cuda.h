#pragma once
#include <string>

#include "core/backend.h"
#include "core/cuda/runtime/launch.h"

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

#include "core/shared/overrides.h"
  void matmul_onto(const Matmul& p, const Tensor& rest) override;
  void cross_entropy_at_once(const CrossEntropy& c, const Tensor& stats, const Tensor& scale,
                             const Tensor& dlogits) override;
  void decide_step(const Tensor& request, const Tensor& totals, const Tensor& decision) override;

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
