#pragma once
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "nn/batch.h"

namespace triax::parallel {

/// The experts that routers chose in a run whose ranks are threads of this process. Of two scores
/// that are equal but for rounding a mesh may take another than one rank does, and both are right:
/// it follows the choices noted there, in such rows alone.
class NotedChoices final : public nn::Choices {
 public:
  /// Follows `noted`, which must outlive this, where the scores of both choices are within `near`
  /// of the larger, place by place.
  explicit NotedChoices(const NotedChoices* noted = nullptr, double near = 0)
      : noted_(noted), near_(near) {}
  Tensor settled(const std::string& router, const std::vector<int64_t>& serial,
                 const Tensor& chosen, const Tensor& scores) const override;

  struct Rows {
    int64_t followed = 0;  ///< in which other experts were taken than the rank's own scores say
    int64_t all = 0;       ///< that were routed; a row counts on each rank of tp
  };
  Rows rows() const { return rows_; }

 private:
  using Experts = std::vector<int32_t>;  // of a row
  bool follows(const Experts& mine, const Experts& theirs, const float* scores) const;

  const NotedChoices* noted_;
  double near_;
  mutable std::mutex lock_;
  mutable Rows rows_;
  mutable std::map<std::pair<std::string, int64_t>, Experts> of_;  // by router and row
};

}  // namespace triax::parallel
