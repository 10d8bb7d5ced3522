#include "triax/core/cuda/cuda.h"

// The emulated device: tensors in host memory, no streams, no libraries.

namespace triax::cuda::TRIAX_TARGET {

Cuda::Cuda(int index) : index_(index), name_("cuda, emulated") {}
Cuda::~Cuda() = default;
std::shared_ptr<Allocator> Cuda::allocator() { return backend(cpu).allocator(); }
const char* Cuda::name() const { return name_.c_str(); }
Stream Cuda::stream() const { return {}; }
std::shared_ptr<Allocator> Cuda::host_allocator() { return allocator(); }
void Cuda::copy(const Tensor& from, const Tensor& to) { copy_here(from, to); }
void Cuda::transfer(const Tensor& from, const Tensor& to) { copy_here(from, to); }
std::unique_ptr<Mark> Cuda::mark() { return nullptr; }
std::unique_ptr<Graph> Cuda::capture(const std::function<void()>& work) {
  return Backend::capture(work);
}
const int64_t* Cuda::shifted_rows() const { return nullptr; }
void Cuda::matmul(const Matmul& p) { backend(cpu).matmul(p); }
void Cuda::matmul_onto(const Matmul& p, const Tensor& rest) { Backend::matmul_onto(p, rest); }

}  // namespace triax::cuda::TRIAX_TARGET

void triax::cuda::emulation::enqueue(Stream, std::function<void()> work) { work(); }
