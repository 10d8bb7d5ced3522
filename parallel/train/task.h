#pragma once
#include <map>
#include <memory>
#include <string>

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

/// What decides which model is trained on which data, beside the settings.
inline std::map<std::string, std::string> identity_of(const Task& task) {
  return {{"samples", task.samples->identity()},
          {"held-out samples", task.held_out ? task.held_out->identity() : "none"}};
}

}  // namespace triax::parallel
