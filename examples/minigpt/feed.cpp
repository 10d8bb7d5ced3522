#include "examples/minigpt/feed.h"

namespace triax::minigpt {

Feed::Feed(const TrainConfig& c, const TextData& text, const parallel::Communicator& dp)
    : config_(c), text_(text), dp_(dp), order_(text.samples(), uint64_t(c.seed)) {}

nn::Batch Feed::at(int64_t step, int64_t micro) const {
  int64_t position =
      (step - 1) * config_.global_batch + (micro * dp_.size() + dp_.rank()) * config_.micro_batch;
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < config_.micro_batch; ++i) samples.push_back(order_.at(position + i));
  nn::Batch batch = text_.batch(samples);
  batch.first = position * config_.model.context;
  return batch;
}

}  // namespace triax::minigpt
