#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/samples.h"
#include "parallel/settings/setting.h"
#include "parallel/train/probe.h"

namespace triax::parallel {

/// A model and its data: all that a trainer needs to know of either. Shared by ranks that are
/// threads, so everything in it is const or pure.
struct Task {
  Build build;
  std::shared_ptr<const nn::Samples> samples;   ///< to train on
  std::shared_ptr<const nn::Samples> held_out;  ///< to validate on; none: no validation
  std::string unit = "samples";                 ///< what nn::Samples::weight counts: `tokens`
  std::string description = {};                 ///< lines printed before training
  /// Texts that every checkpoint carries along, and files NAME.json of the run directory.
  std::map<std::string, std::string> attachments = {};
  Settings settings = {};   ///< options of the model and the data
  std::string config = {};  ///< a configuration file that repeats the run
};

/// A micro-batch as the task's are: its shapes, and values that are there.
inline nn::Batch batch_like(const Task& task, int64_t samples) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < samples; ++i) indices.push_back(i % task.samples->count());
  return task.samples->batch(indices);
}

/// What decides which model is trained on which data, beside the settings.
inline std::map<std::string, std::string> identity_of(const Task& task) {
  return {{"samples", task.samples->identity()},
          {"held-out samples", task.held_out ? task.held_out->identity() : "none"}};
}

}  // namespace triax::parallel
