#include "triax/parallel/tensor/slices.h"

#include <cmath>
#include <utility>

#include "triax/core/check.h"

namespace triax::parallel {
namespace {

/// The gradient of an input of split products: this rank's part, in f64.
class FeatureGradient : public autograd::Collector {
 public:
  FeatureGradient(const Slices& slices, const Tensor& y, int64_t terms)
      : slices_(slices), shape_(y.shape()), device_(y.device()), terms_(terms) {}

  Sums offer(const autograd::Node&) override {
    if (!sum_.defined()) sum_ = empty(shape_, f64, device_);
    return {sum_, uses_ > 0 ? Write::add : Write::set, slices_.backward, terms_,
            Sums::Over::features};
  }
  void collect(const autograd::Node& n, const Tensor& part) override {
    if (!part.is(sum_)) slices_.refuse(n.name);
    ++uses_;
    check_input(uses_ <= most_uses, Exit::config,
                "bitwise with tp-slices={}: {} is use {} of what one `enter` returns; expected at "
                "most {}, whose sum is exact\n  Call `enter` again for it.",
                slices_.count, n.name, uses_, most_uses);
  }
  Tensor take() override { return uses_ > 0 ? std::move(sum_) : Tensor(); }

 private:
  static constexpr int most_uses = 2;  // of 2^52 units each: f64 holds all multiples up to 2^53
  Slices slices_;
  Shape shape_;
  Device device_;
  int64_t terms_;
  int uses_ = 0;
  Tensor sum_;
};

}  // namespace

Sums Slices::activations(const Shape& shape, Device device, int64_t terms) const {
  auto grid = std::make_shared<FixedPoint>(FixedPoint::of(0x1p-32, count));
  return {empty(shape, f64, device), Write::set, std::move(grid), terms};
}

std::shared_ptr<autograd::Collector> Slices::gradient(const Tensor& y, int64_t terms) const {
  return std::make_shared<FeatureGradient>(*this, y, terms);
}

void Slices::set_seed(double seed) {
  *backward = FixedPoint::of(std::scalbn(1., std::ilogb(seed) - 36), count);
}

void Slices::refuse(const char* what) const {
  check_input(count == 1, Exit::config,
              "bitwise with tp-slices={}: {} sums features in an order that depends on tp; "
              "expected the layers of parallel/tensor alone\n  Take --tp 1 without --tp-slices.",
              count, what);
}

}  // namespace triax::parallel
