#pragma once
#include <condition_variable>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "nn/samples.h"
#include "parallel/data/sampler.h"

namespace triax::parallel {

/// The batch of these samples: augmented, with serial numbers from `first` on; as they are if that
/// is nn::evaluation. Its tensors must be on the CPU with a dim 0 that counts the samples: else
/// Error 65. Whatever goes wrong names `of` (the step, or validation) and the indices.
nn::Batch batch_of(const nn::Samples& samples, const std::vector<int64_t>& indices, int64_t first,
                   const std::string& of);

/// Which samples a rank gets. The samples of a step are cut over micro-batches, then replicas:
/// which they are depends on the step alone, not on the mesh.
class Feed {
 public:
  struct Place {
    int64_t micro_batch = 1, global_batch = 1;
    int replica = 0, replicas = 1;
    int64_t micros() const { return global_batch / (micro_batch * replicas); }
  };
  Feed(std::shared_ptr<const nn::Samples> samples, uint64_t seed, const Place& place);

  /// Samples that all steps up to `step` consume: the next step begins with those that follow.
  int64_t consumed(int64_t step) const { return step * place_.global_batch + before_; }
  /// Steps up to `step` have consumed `samples`, with another global batch. Before any batch is
  /// made.
  void set_consumed(int64_t step, int64_t samples) {
    before_ = samples - step * place_.global_batch;
  }

  /// Micro-batch `micro`, from 0, of this replica in `step`, from 1; on the CPU.
  nn::Batch at(int64_t step, int64_t micro) const;
  /// Targets that count in all of `step`, over all replicas.
  double weight(int64_t step) const;

  /// The same for a pass over all samples in their order; blanks fill up the last micro-batches.
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

/// A feed whose batches worker threads make ahead of their use. Which batch comes when is the
/// feed's business, so any number of workers gives the same training.
class Loader {
 public:
  /// `workers` 0: batches are made when they are asked for. `feed` must outlive it.
  Loader(const Feed& feed, int workers);
  ~Loader();

  /// Feed::at(step, micro). Batches of earlier steps are forgotten, `workers` and two more are made
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
  std::shared_ptr<memory::Counter> counter_;  // of the rank
  std::mutex lock_;
  std::condition_variable_any wanted_, made_;
  std::map<int64_t, Made> batches_;    // by number: step * micros + micro
  int64_t next_ = 0, end_ = 0;         // numbers that no worker has taken yet: [next_, end_)
  std::vector<std::jthread> workers_;  // last: they end before what they use
};

}  // namespace triax::parallel
