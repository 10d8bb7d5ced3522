#pragma once
#include <memory>
#include <vector>

#include "triax/nn/samples.h"

namespace triax::text {

/// Several data sets as one, each with a share of the samples: a share of 0.7 is 0.7 of a long run.
/// There are as many samples that every data set occurs whole at least once; one whose share is
/// larger than its size is repeated.
class Mixture : public nn::Samples {
 public:
  struct Part {
    std::shared_ptr<const nn::Samples> samples;
    double share = 0;  ///< > 0; relative to the others
  };
  /// Takes at least one part; batches of all have the same shapes.
  explicit Mixture(std::vector<Part> parts);
  /// Returns the sets one after another, each once.
  static std::shared_ptr<const Mixture> joined(
      const std::vector<std::shared_ptr<const nn::Samples>>& sets);

  int64_t count() const override { return ends_.back(); }
  nn::Batch batch(std::span<const int64_t> indices) const override;
  double weight(int64_t index) const override;
  std::string identity() const override;

 private:
  struct Place {
    const nn::Samples& samples;
    int64_t index;
  };
  Place at(int64_t index) const;

  std::vector<Part> parts_;
  std::vector<int64_t> ends_;  // where the parts end, in samples
};

/// One of the sources that --data names.
struct DataSource {
  std::string path;
  double share = 1;
};
/// Reads `PATH`, or `A:0.7,B:0.3`. A path that exists is taken as it is. Throws Error 78 for a
/// share that is not above 0 or is less than 1e-9 of another, and for a source without one beside
/// others, which may have none either if there is a file of one's name.
std::vector<DataSource> data_sources(const std::string& data);

}  // namespace triax::text
