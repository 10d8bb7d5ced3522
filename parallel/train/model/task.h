#pragma once
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "triax/nn/samples.h"
#include "triax/parallel/settings/setting.h"
#include "triax/parallel/train/model/probe.h"

namespace triax::parallel {

/// Adds something up over a micro-batch's rows: `prediction` is the last layer's output for it
/// without target. With context parallelism a rank has some rows of each sample, so what counts
/// whole samples is another number with each cp. Both are on the CPU. Blanks, which fill up the
/// last micro-batch, must add nothing.
using Score = std::function<double(const Tensor& prediction, const Tensor& target)>;
using Scores = std::map<std::string, Score>;  ///< by name

/// Counts targets [rows] (i32 or i64) that are among the k largest predictions [rows, classes]; of
/// equal ones the first counts. A target of -1, or of a prediction of NaN, is among none. k >= 1.
Score top_k(int64_t k);

/// A model and its data, as a trainer needs them. Shared by ranks that are threads, so everything
/// in it is const or pure.
struct Task {
  Build build;
  std::shared_ptr<const nn::Samples> samples;   ///< samples to train on
  std::shared_ptr<const nn::Samples> held_out;  ///< samples to validate on; none: no validation
  Scores scores = {};            ///< means over held-out samples: `val_NAME` of the metrics
  std::string unit = "samples";  ///< the unit of nn::Samples::weight: `tokens`
  std::string description = {};  ///< lines printed before training
  /// The texts that every checkpoint carries along, and files NAME.json of the run directory.
  std::map<std::string, std::string> attachments = {};
  /// Returns true if two texts under the name of an attachment mean the same, so that weights of
  /// one are of the other. None: if they are equal.
  std::function<bool(const std::string&, const std::string&)> alike = {};
  /// Writes more files into the run directory, beside the attachments, on rank 0. None: nothing.
  std::function<void(const std::string& directory)> accompany = {};
  Settings settings = {};    ///< options of the model and the data
  std::string config = {};   ///< a configuration file that repeats the run
  std::string command = {};  ///< continues the run: `mpirun -np 4 minigpt train`
  std::map<std::string, std::string> identity = {};  ///< identity_of, once it was asked for
  std::string foreseen_memory = {};  ///< a rank's, for settings.txt; on rank 0; empty: not known
};

/// Throws Error 78 for a task that lacks something or whose names are taken, 65 for one without
/// samples.
void check_task(const Task& task);

/// Returns a micro-batch like those of training, with shapes and values. Throws Error 71 if there
/// is no room for it.
nn::Batch batch_like(const Task& task, int64_t samples);
/// Returns `samples` times the first sample, on the meta device: shapes without values.
nn::Batch shaped_like(const Task& task, int64_t samples);

/// Returns shapes, dtypes and checksums of a batch.
std::string digest(const nn::Batch& batch);

/// Returns a warning if the first sample's weight is not the number of its integer targets other
/// than -1, else nothing. Both may be intended.
std::string weight_warning(const nn::Samples& samples);

/// Returns all that identifies model and data, beside the settings, under names that no flag can
/// have. Reads all data unless `task.identity` is there.
std::map<std::string, std::string> identity_of(const Task& task);

}  // namespace triax::parallel
