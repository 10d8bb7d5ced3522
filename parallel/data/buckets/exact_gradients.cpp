#include "triax/parallel/data/buckets/exact_gradients.h"

#include <algorithm>
#include <utility>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

int64_t rows_of(const autograd::Node& n) {
  return n.shape.rank() == 0 || n.shape[-1] == 0 ? 1 : n.shape.numel() / n.shape[-1];
}

}  // namespace

/// A part of the gradient is cut into the rows of each sample and, where all features are on every
/// rank, into as many parts of them as there are slices: so many terms on any mesh.
class ExactGradients::View : public autograd::GradientView {
 public:
  View(const nn::Parameter& p, const Tensor& to, int64_t ranks, int64_t row_parts)
      : GradientView(to),
        p_(p),
        ranks_(p.shard.is("tp", nn::Along::parts) ? ranks : 1),
        chains_(std::max<int64_t>(1, p.shard.chains) * row_parts),
        cut_by_op_(p.shard.chains == 0),
        must_cut_(!cut_by_op_ && (p.shard.is("tp", nn::Along::parts) || row_parts > 1)) {}

  Sums offer(const autograd::Node& n) override {
    Sums s = GradientView::offer(n);
    if (!cuts_samples(n) || (must_cut_ && !cuts_chains(n))) return {};  // see collect()
    s.grid = grid_, s.terms = terms(n), s.groups = p_.shard.groups;
    return s;
  }

  void collect(const autograd::Node& n, const Tensor& part) override {
    bool in_terms = part.is(view());
    if (!in_terms) {
      check_whole(n);
      backend(part).accumulate_fixed(part.contiguous(), *grid_, view(), write());
    }
    parts_ += in_terms ? terms(n) : 1;
    written();
  }

  /// Returns the most terms of a pass, over all ranks of tp, of one use in each of `samples`.
  int64_t most_terms(int64_t samples) const { return samples * chains_ * ranks_; }
  void set(const FixedPoint& grid) { *grid_ = grid; }
  void check_uses(int64_t samples) {
    int64_t once = samples * chains_, parts = std::exchange(parts_, 0);
    check_input(parts <= most_uses * once, Exit::config,
                "bitwise: parameter {} is used {} times in a pass; expected at most {}, whose sum "
                "is exact\n  Leave --bitwise out.",
                p_.name, (parts + once - 1) / once, most_uses);
  }

 private:
  // Strips of tiles must not hold rows of two samples, or bits would depend on both.
  static bool cuts_samples(const autograd::Node& n) {
    return n.samples == 1 || rows_of(n) % (n.samples * Matmul::block) == 0;
  }
  bool cuts_chains(const autograd::Node& n) const { return rows_of(n) / n.samples % chains_ == 0; }
  int64_t terms(const autograd::Node& n) const {
    return n.samples * (!cut_by_op_ && cuts_chains(n) ? chains_ : 1);
  }

  /// Checks that a part which was not made in terms is one.
  void check_whole(const autograd::Node& n) const {
    check_input(cuts_samples(n), Exit::config,
                "bitwise: a weight is used by {} rows of {} samples; expected a multiple of {} for "
                "each in a layer that is `independent`\n  Take --micro-batch 1.",
                rows_of(n), n.samples, Matmul::block);
    check_input(n.samples == 1, Exit::config,
                "bitwise: {} does not sum the gradient of a weight sample by sample; expected "
                "products with a weight, norms, embedding or x + bias in a layer that is "
                "`independent`\n  Take --micro-batch 1.",
                n.name);
    check_input(!must_cut_, Exit::config,
                "bitwise with sequence-parallel or row-parts: {} does not sum the gradient of a "
                "weight in {} equal parts of the rows that a rank has of a sample; expected rows "
                "that can be cut so, and layer_norm, rms_norm, embedding, linear or x + bias\n  "
                "Take sequences of a length that --tp-slices x --row-parts divides, or leave "
                "--sequence-parallel and --row-parts out.",
                n.name, chains_);
  }

  const nn::Parameter& p_;
  int64_t ranks_, chains_, parts_ = 0;  // chains_: of a sample's rows
  bool cut_by_op_, must_cut_;
  std::shared_ptr<FixedPoint> grid_ = std::make_shared<FixedPoint>();
};

std::shared_ptr<autograd::GradientView> ExactGradients::collector(const nn::Parameter& p,
                                                                  const Tensor& view,
                                                                  const Communicator* tp) {
  check(!p.shard.is("tp", nn::Along::parts) || tp,
        "bitwise: the gradient of {} comes in parts; expected a mesh", p.name);
  views_.push_back(std::make_shared<View>(p, view, tp ? tp->size() : 1, row_parts_));
  return views_.back();
}

void ExactGradients::begin(int64_t micros, double scale) {
  int64_t samples = most_uses * micros * samples_ * replicas_;
  for (auto& v : views_) v->set(FixedPoint::of(unit * scale, double(v->most_terms(samples))));
  largest_part_ = FixedPoint::of(unit, double(samples * row_parts_)).largest;
}

void ExactGradients::check_uses(int64_t micros) const {
  for (auto& v : views_) v->check_uses(micros * samples_);
}

}  // namespace triax::parallel
