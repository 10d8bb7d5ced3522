#include "triax/core/meta/meta.h"

#include <algorithm>
#include <utility>

#include "triax/core/shared/attention.h"
#include "triax/core/shared/conv.h"

namespace triax {
namespace {

class Nowhere final : public Allocator {
 public:
  void* allocate(size_t) override { return &nothing_; }  // never read: no kernel runs here
  void deallocate(void*, size_t) noexcept override {}

 private:
  alignas(64) char nothing_ = 0;
};

thread_local Device::Kind target = Device::Kind::cpu;  // of MetaTarget

void moves(const Tensors& tensors) {
  ++meta_work().kernels;
  for (auto& t : tensors)
    if (t.defined()) meta_work().bytes += double(t.bytes());
}

/// Notes that another kernel reads `x` and changes a product's result: the product reads x instead.
void fuse(const Tensor& x) {
  meta_work().fused_bytes += 2 * double(x.bytes());
  ++meta_work().fused_kernels;
}

/// Returns the scores that `time` queries see: the sum of end(i) - begin(i).
double seen_by(const Band& band, int64_t time) {
  int64_t growing = std::clamp<int64_t>(band.keys - band.high, 0, time);  // ends below `keys`
  int64_t first = std::clamp<int64_t>(-band.low, 0, time), late = time - first;  // begins above 0
  int64_t ends = growing * (band.high + 1) + growing * (growing - 1) / 2;
  return double(ends + (time - growing) * band.keys - late * band.low -
                late * (first + time - 1) / 2);
}

/// Counts `products` matrix products a head, over the scores that are seen.
void attend(const Attention& a, double products) {
  double seen = seen_by(a.band, a.time);
  double features = double(a.sequences() * a.heads() * a.head_dim());
  meta_work().products += products * 2 * seen * features;
  meta_work().attention += products * 2 * seen * features;
  meta_work().scores += double(a.sequences() * a.heads() * a.time) * double(a.band.keys);
  moves({a.in.q, a.in.k, a.in.v});
}

class MetaBackend final : public Backend {
 public:
  std::shared_ptr<Allocator> allocator() override { return nowhere_; }
  const char* name() const override { return "meta"; }

  void copy(const Tensor& from, const Tensor& to) override {
    moves({from, to});
    if (to.device() == cpu) backend(cpu).fill(to, 0);
  }
  void fill(const Tensor& x, double) override { moves({x}); }
  void accumulate(const Tensor& from, const Tensor& to) override { moves({from, to, to}); }
  void index_select(const Tensor&, int, const Tensor&, const Tensor& y) override { moves({y, y}); }
  void index_add(const Tensor& dy, int, const Tensor&, const Tensor&) override {
    moves({dy, dy, dy});
  }
  void gather(const Tensor&, const Tensor& index, const Tensor& y) override {
    moves({index, y, y});
  }
  void scatter_add(const Tensor& dy, const Tensor& index, const Tensor&) override {
    moves({index, dy, dy, dy});
  }

  void unary(Unary, const Tensor& x, const Tensor& y) override { moves({x, y}); }
  void unary_backward(Unary, const Tensor& x, const Tensor& y, const Tensor& dy, const Tensor& dx,
                      Write) override {
    bool one = x.storage() == y.storage();  // that the op has kept
    moves({x, one ? Tensor() : y, dy, dx});
  }
  void binary(Binary, const Tensor& a, const Tensor& b, const Tensor& y) override {
    moves({a, b, y});
  }
  void where(const Tensor& mask, const Tensor& a, const Tensor& b, const Tensor& y) override {
    moves({mask, a, b, y});
  }
  void dropout(const Tensor& x, const random::Mask&, const Tensor& y) override { moves({x, y}); }

  void sum(const Tensor& x, const Tensor& y, Write) override { moves({x, y}); }
  void max(const Tensor& x, const Tensor& y) override { moves({x, y}); }
  void squares(const Tensor& x, const Tensor&) override { moves({x}); }
  void accumulate_fixed(const Tensor& x, const FixedPoint&, const Tensor& sums, Write) override {
    moves({x, sums, sums});
  }
  void squares_fixed(const Tensor& x, const Tensor&) override { moves({x}); }

  void matmul(const Matmul& p) override {
    bool narrow = size_of(p.a.dtype()) == 2;  // cuBLASLt has gelu in 16 bits alone
    if (p.has_backward_extras()) {
      if (narrow && p.gelu_of.defined() && p.write == Write::set) fuse(p.gelu_of);
      return matmul_in_steps(*this, p);
    }
    if (p.before.defined()) {
      meta_work().fused_bytes -= (narrow ? 1 : 2) * double(p.before.bytes());
      meta_work().fused_kernels -= narrow ? 0 : 1;
    }
    ++meta_work().matmuls;
    meta_work().products += 2 * double(p.c.numel()) * double(p.a.size(p.a.rank() - 1));
  }

  void matmul_onto(const Matmul& p, const Tensor& rest) override {
    Backend::matmul_onto(p, rest);
    fuse(rest);
  }

  void softmax(const Tensor& x, const Tensor& y) override { moves({x, y}); }
  void softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override {
    moves({y, dy, dx});
  }
  void log_softmax(const Tensor& x, const Tensor& y) override { moves({x, y}); }
  void log_softmax_backward(const Tensor& y, const Tensor& dy, const Tensor& dx) override {
    moves({y, dy, dx});
  }
  void norm(const Norm& n, const Tensor& y) override { moves({n.x, y}); }
  Tensor norm_backward(const Norm& n, const Tensor& dy, const Tensor& dx, Write) override {
    moves({n.x, dy, dx});
    return {};
  }
  void norm_backward_weights(const Norm& n, const Tensor& dy, const Tensor&, const Tensor&,
                             Write) override {
    moves({n.x, dy});
  }

  void channel_sums(const Tensor& x, const Tensor& z, const Tensor&) override { moves({x, z}); }
  void channel_affine(const Tensor& x, const Tensor& z, const Tensor&, const Tensor& y) override {
    moves({x, z, y});
  }

  void embedding(const Tensor&, const Tensor&, int64_t, const Tensor& y) override { moves({y, y}); }
  void embedding_backward(const Tensor&, const Tensor& dy, int64_t, const Tensor& dtable,
                          Write write) override {
    moves({dy, dy, dy});
    if (write == Write::set) moves({dtable});
  }
  void cross_entropy_stats(const CrossEntropy& c, const Tensor&) override { moves({c.logits}); }
  void cross_entropy_losses(const CrossEntropy&, const Tensor& stats, const Tensor&) override {
    moves({stats});
  }
  void cross_entropy_backward(const CrossEntropy& c, const Tensor&, const Tensor&,
                              const Tensor& dlogits) override {
    moves({c.logits, dlogits});
  }
  void cross_entropy_at_once(const CrossEntropy& c, const Tensor&, const Tensor&,
                             const Tensor& dlogits) override {
    moves({c.logits, dlogits});
  }
  void attention(const Attention& a, const Tensor& y, const Tensor&) override {
    attend(a, 2);
    moves({y});
  }
  void attention_backward(const Attention& a, const Tensor& y, const Tensor&, const Tensor& dy,
                          const Qkv& d) override {
    attend(a, 5);  // the scores once more, and four gradients
    moves({y, dy, d.q, d.k, d.v});
  }

  void rotary(const Rotary& r, const Tensor& y) override { moves({r.x, y}); }

  void patches(const Tensor& x, const Windows&, const Tensor& y) override { moves({x, y}); }
  void patches_backward(const Tensor& dy, const Windows&, const Tensor& dx) override {
    moves({dy, dx});
  }
  void conv2d(const Conv2d& c, const Tensor& y) override {
    Tensor more = what_tiles_need_more(c, c);
    Backend::conv2d(c, y);
  }
  void conv2d_backward_input(const Conv2d& c, const Tensor& dy, const Tensor& dx) override {
    Conv2d of_dx = c;  // whose tiles are of pixels of x, as many as results with this padding
    of_dx.windows.high.padding = of_dx.windows.wide.padding = 1;
    Tensor more = what_tiles_need_more(c, of_dx);
    Backend::conv2d_backward_input(c, dy, dx);
  }
  void conv2d_backward_weight(const Conv2d& c, const Tensor& dy, const Tensor& dw,
                              Write write) override {
    Tensor more = what_tiles_need_more(c, c);
    Backend::conv2d_backward_weight(c, dy, dw, write);
  }
  void pool(const Pool2d&, const Tensor& x, const Tensor& y, const Tensor& chosen) override {
    moves({x, y, chosen});
  }
  void pool_backward(const Pool2d&, const Tensor& dy, const Tensor& chosen,
                     const Tensor& dx) override {
    moves({dy, chosen, dx});
  }

  void decide_step(const Tensor&, const Tensor&, const Tensor&) override {}
  void update(const OptimizerSlot& s, const Tensors& states, const UpdateRule&,
              const UpdateStep&) override {
    Tensors moved{s.weight, s.weight, s.master, s.master, s.grad};
    for (const Tensor& x : states) moved.insert(moved.end(), {x, x});
    moves(moved);
  }
  void average(const Tensor& average, const Tensor& x, const AverageStep&) override {
    moves({x, average, average});
  }

 private:
  /// Returns the memory that tiles take beyond patches: CPUs compute some convolutions by tiles.
  /// The products that are counted are those with patches.
  static Tensor what_tiles_need_more(const Conv2d& c, const Conv2d& tiled) {
    bool by_tiles = target == Device::Kind::cpu && tiles_are_faster(c);
    int64_t more = by_tiles ? elements_of_tiles(tiled) - elements_of_patches(c) : 0;
    return empty({std::max<int64_t>(more, 0)}, c.x.dtype(), meta_device);
  }

  std::shared_ptr<Allocator> nowhere_ = std::make_shared<Nowhere>();
};

}  // namespace

MetaTarget::MetaTarget(Device::Kind kind) : Scoped(target, kind) {}
Device::Kind MetaTarget::kind() { return target; }

KernelWork KernelWork::operator-(const KernelWork& before) const {
  return {products - before.products,       bytes - before.bytes,
          kernels - before.kernels,         matmuls - before.matmuls,
          attention - before.attention,     scores - before.scores,
          fused_bytes - before.fused_bytes, fused_kernels - before.fused_kernels};
}

KernelWork KernelWork::on_gpu() const {
  KernelWork work = *this;
  work.bytes -= std::exchange(work.fused_bytes, 0);
  work.kernels -= std::exchange(work.fused_kernels, 0);
  return work;
}

KernelWork& meta_work() {
  thread_local KernelWork work;
  return work;
}

Backend& meta_backend() {
  static MetaBackend instance;
  return instance;
}

}  // namespace triax
