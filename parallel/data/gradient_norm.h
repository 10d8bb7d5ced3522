#pragma once
#include <optional>
#include <span>
#include <string>

#include "triax/parallel/data/buckets/held_model.h"

namespace triax::parallel {

/// Adds {sum of squares, non-finite elements} of x, wherever it is, to `sums`.
void squares(const Tensor& x, const Tensor& sums);

/// The norm of a model's summed gradient, and where an inf or a NaN in it comes from.
class GradientNorm {
 public:
  explicit GradientNorm(const HeldModel& m) : m_(m) {}

  struct Norm {
    double value;       ///< Euclidean, over each logical parameter once; infinity if not finite
    double non_finite;  ///< elements that are inf or NaN, anywhere, also in replicas
  };
  /// Returns the norm of the whole model's gradient, alike on all ranks. Collective.
  Norm norm() const;
  /// Adds this rank's part, without waiting for the device: DataParallel::add_squares.
  void add_squares(const Tensor& sums) const;
  /// Returns the norm of sums over all ranks.
  static Norm norm_of(std::span<const double> sums);

  struct NonFinite {
    std::string parameter;  ///< empty: none
    int rank = -1;          ///< in the world: made it or (not watched) holds it
    int64_t micro = -1;     ///< its micro-batch of this step; -1: not watched
  };
  /// Implements DataParallel::first_non_finite.
  NonFinite first_non_finite() const;

  /// Begins a step: forgets what was seen, and sets whether to check every backward pass.
  enum class Watch { off, on };
  void begin(Watch watch) {
    watching_ = watch == Watch::on;
    seen_.reset();
  }
  /// Checks a piece that a backward pass has completed and that is not reduced yet.
  void look_at(const Bucket& b, size_t piece);

 private:
  struct Seen {
    size_t parameter;  // index in declared
    int64_t micro;
  };
  const HeldModel& m_;
  bool watching_ = false;
  std::optional<Seen> seen_;  // the first non-finite gradient of this rank
};

}  // namespace triax::parallel
