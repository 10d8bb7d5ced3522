#include <algorithm>
#include <cstring>

#include "triax/core/check.h"
#include "triax/core/cuda/cuda.h"
#include "triax/core/cuda/runtime/context.h"
#include "triax/core/cuda/runtime/status.h"

// Bytes between the host and a GPU, and between GPUs.

namespace triax::cuda::TRIAX_TARGET {

namespace {

/// The bytes that cross at once through pinned memory.
constexpr size_t piece = size_t{8} << 20;

void move(const Context& c, void* to, const void* from, size_t bytes) {
  require(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, c.stream()), "cudaMemcpyAsync");
}

// Copies; the host goes on at once: what it copied into pinned memory is safe from later changes.
void to_device(const Context& c, char* to, const char* from, size_t bytes) {
  check(!c.capturing(),
        "cuda: {} bytes of the host's are copied in a step that is captured as a "
        "graph, which would read them again; expected a tensor made before",
        bytes);
  for (size_t at = 0; at < bytes; at += piece) {
    size_t n = std::min(piece, bytes - at);
    Block block = borrow(c.host_pool(), n);
    std::memcpy(block.get(), from + at, n);
    move(c, to + at, block.get(), n);
  }
}

void to_host(const Context& c, char* to, const char* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += piece) {
    size_t n = std::min(piece, bytes - at);
    Block block = borrow(c.host_pool(), n);
    move(c, block.get(), from + at, n);
    c.synchronize();
    std::memcpy(to + at, block.get(), n);
  }
}

// Copies between devices; each stream goes on behind what the other had done with these bytes.
void between(int to_index, const Tensor& from, const Tensor& to) {
  const Context& here = context(from.device().index);
  Event written;  // an event belongs to the device that is current when it is made
  written.record(here.stream());
  const Context& there = context(to_index);
  written.hold(there.stream());
  require(cudaMemcpyPeerAsync(to.data(), to_index, from.data(), from.device().index, from.bytes(),
                              there.stream()),
          "cudaMemcpyPeerAsync");
  Event read;
  read.record(there.stream());
  read.hold(here.stream());
}

}  // namespace

void Cuda::copy(const Tensor& from, const Tensor& to) {
  if (from.device() == to.device()) return copy_here(from, to);
  if (!from.is_contiguous() || from.dtype() != to.dtype())
    return copy(from.detach().to(to.dtype()).contiguous(), to);
  if (!to.is_contiguous()) return copy_(to, from.detach().to(to.device()));
  if (from.device() == cpu)
    return to_device(context(index_), static_cast<char*>(to.data()),
                     static_cast<const char*>(from.data()), from.bytes());
  if (to.device() == cpu)
    return to_host(context(index_), static_cast<char*>(to.data()),
                   static_cast<const char*>(from.data()), from.bytes());
  between(index_, from, to);
}

void Cuda::transfer(const Tensor& from, const Tensor& to) {
  move(context(index_), to.data(), from.data(), from.bytes());
}

}  // namespace triax::cuda::TRIAX_TARGET
