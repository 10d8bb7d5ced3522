#pragma once
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "parallel/train/feed.h"

namespace triax::parallel {

/// A feed whose batches worker threads make ahead of their use. Which batch comes when is the
/// feed's business, so any number of workers gives the same training.
class Loader {
 public:
  /// `workers` 0: batches are made when they are asked for. `feed` must outlive it.
  Loader(const Feed& feed, int workers);
  ~Loader() { stop_.request_stop(); }

  /// Feed::at(step, micro). Batches of earlier steps are forgotten, `workers` and two more are made
  /// ahead. Throws what the samples threw.
  nn::Batch at(int64_t step, int64_t micro);

 private:
  struct Made {
    nn::Batch batch;
    std::exception_ptr error;
    bool done = false;
  };
  void work();

  const Feed& feed_;
  std::shared_ptr<memory::Counter> counter_;  // of the rank
  std::mutex lock_;
  std::condition_variable_any wanted_, made_;
  std::map<int64_t, Made> batches_;  // by number: step * micros + micro
  int64_t next_ = 0, end_ = 0;       // numbers that no worker has taken yet: [next_, end_)
  std::stop_source stop_;
  std::vector<std::jthread> workers_;
};

}  // namespace triax::parallel
