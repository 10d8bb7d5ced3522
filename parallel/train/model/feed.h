#pragma once
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "triax/core/memory.h"
#include "triax/nn/samples.h"
#include "triax/parallel/data/sampler.h"

namespace triax::parallel {

/// Returns the batch of these samples: augmented, with serial numbers from `first` on; unchanged if
/// that is nn::evaluation. Its tensors must be on the CPU with a dim 0 that counts the samples:
/// else Error 65. Every error names `of` (the step, or validation) and the indices.
nn::Batch batch_of(const nn::Samples& samples, const std::vector<int64_t>& indices, int64_t first,
                   const std::string& of);

/// Decides which samples a rank gets. The samples of a step are cut over micro-batches, then
/// replicas: which they are depends on the step alone, not on the mesh.
class Feed {
 public:
  struct Place {
    int64_t micro_batch = 1, global_batch = 1;
    int replica = 0, replicas = 1;
    int64_t micros() const { return global_batch / (micro_batch * replicas); }
  };
  Feed(std::shared_ptr<const nn::Samples> samples, uint64_t seed, const Place& place);

  /// Returns the number of samples that all steps up to `step` consume: the next begins there.
  int64_t consumed(int64_t step) const { return step * place_.global_batch + before_; }
  /// Records that steps up to `step` consumed `samples`, with another global batch. Call it before
  /// any batch is made.
  void set_consumed(int64_t step, int64_t samples) {
    before_ = samples - step * place_.global_batch;
  }

  /// Returns micro-batch `micro`, from 0, of this replica in `step`, from 1; on the CPU.
  nn::Batch at(int64_t step, int64_t micro) const;
  /// Returns the number of targets that count in all of `step`, over all replicas.
  double weight(int64_t step) const;

  /// Return a pass over all samples in order, its length and weight; blanks fill up its last ones.
  nn::Batch in_order(int64_t micro) const;
  int64_t micros_in_order() const;
  double weight_in_order() const;

  const Place& place() const { return place_; }

 private:
  int64_t offset(int64_t micro) const {
    return (micro * place_.replicas + place_.replica) * place_.micro_batch;
  }
  std::shared_ptr<const nn::Samples> samples_;
  Sampler order_;
  Place place_;
  int64_t before_ = 0;  // consumed more than global_batch a step
};

/// A feed whose batches worker threads make ahead of their use. The feed alone decides their order,
/// so training does not depend on the number of workers.
class Loader {
 public:
  /// Takes the number of threads; 0: batches are made when asked for. `feed` must outlive it.
  Loader(const Feed& feed, int workers);
  ~Loader();

  /// Returns Feed::at(step, micro). Drops batches of earlier steps; `workers` + 2 more are made
  /// ahead. Throws what the samples threw.
  nn::Batch at(int64_t step, int64_t micro);

 private:
  struct Made {
    nn::Batch batch;
    std::exception_ptr error;
    bool done = false;
  };
  void work(const std::stop_token& stop);

  const Feed& feed_;
  std::shared_ptr<memory::Counter> counter_;  // the rank's
  std::mutex lock_;
  std::condition_variable_any wanted_, made_;
  std::map<int64_t, Made> batches_;    // by number: step * micros + micro
  int64_t next_ = 0, end_ = 0;         // numbers that no worker has taken yet: [next_, end_)
  std::vector<std::jthread> workers_;  // last: they end before what they use
};

}  // namespace triax::parallel
